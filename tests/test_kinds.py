"""Kernel names as real traces and libraries have them, and what each does."""

import time

import pytest

from stepscope.analyzers.kinds import kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "communication"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclSymkDevKernel_ReduceScatter_LD", "communication"),
        ("ncclAllReduceRingLLKernel_sum_f16(ncclColl)", "communication"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "communication"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "communication"),  # RCCL
        ("mscclKernel_Sum_bfloat16_LL128_false", "communication"),
        ("void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>", "communication"),
        ("void vllm::cross_device_reduce_1stage<nv_bfloat16, 8>(vllm::RankData*)", "communication"),
        ("void deep_ep::internode::dispatch<false, 8>", "communication"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "communication"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>)", "attention"),
        ("attn_fwd", "attention"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1", "gemm fp8"),
        ("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "gemm fp8"),
        ("nvjet_qqhsh_128x128_128x6_2x1_v_bz_TNN", "gemm fp8"),
        ("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "gemm fp8"),
        ("triton_tem_fused__scaled_mm_3", "gemm fp8"),
        ("Cijk_Alik_Bljk_F8BS_BH_Bias_HAS_SAV_UserArgs_MT64x32x64_MI16x16x1", "gemm fp8"),
        ("nvjet_ootst_128x128_256x4_2x1_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", "gemm fp4"),
        ("bmm_E2m1_E2m1E2m1_Fp32_t128x128x512", "gemm fp4"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::float_e4m3_t>>", "gemm fp8"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment", "gemm"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>", "gemm"),
        ("volta_sgemm_32x32_sliced1x4_tn", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0", "gemm"),
        ("void splitKreduce_kernel<float, float, float, float, true, false, false>", "gemm"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false>", "gemm"),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "gemm"),
        ("triton_tem_fused_addmm_0", "gemm"),
        ("matmul_kernel_persistent", "gemm"),
        ("triton_poi_fused_add_matmul_0", "elementwise"),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>>>>",
            "gemm",
        ),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<2>>>", "attention"),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl<1>", "gemm fp8"),
        ("sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize128x128x128", "gemm fp8"),
        ("void ck::kernel_gemm_xdl_cshuffle_v3", "gemm"),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*, int const*, int*)", "copy and layout"),
        ("triton_red_fused_abs_amax_0", "fp8 cast and scale"),
        ("triton_red_fused_abs_max_2", "fp8 cast and scale"),
        ("triton_per_fused__to_copy_abs_clamp_max_mul_reciprocal_view_1", "fp8 cast and scale"),
        ("triton_poi_fused__scaled_mm__to_copy_clamp_mul_reciprocal_t_view_4", "fp8 cast and scale"),
        ("void at::native::elementwise_kernel<4, at::native::float8_copy_kernel_cuda>", "fp8 cast and scale"),
        ("block_scaled_1d_cast_transpose_kernel", "fp8 cast and scale"),
        ("void at::native::quantile_kernel", "other"),
        ("triton_poi_fused_convert_element_type_exp_le_mul_where_0", "elementwise"),
        ("triton_poi_fused_convolution_relu_1", "elementwise"),
        ("triton_red_fused__to_copy_mm_sum_4", "reduction"),
        ("triton_per_fused__softmax_abs_sum_1", "softmax and loss"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_clone_2", "elementwise"),
        ("triton_poi_fused__to_copy_0", "copy and layout"),
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("volta_fp16_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1", "convolution"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64>", "convolution"),
        ("triton_poi_fused__to_copy_clamp_mul_float8_e4m3fn_1", "fp8 cast and scale"),
        ("volta_scudnn_128x128_stridedB_splitK_small_nn_v1", "convolution"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "convolution"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "convolution"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>", "optimizer"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", "normalisation"),
        ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>", "normalisation"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>", "softmax and loss"),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, int, unsigned>", "embedding"),
        ("batched_transpose_16x32_half", "copy and layout"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>", "copy and layout"),
        ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper>>", "reduction"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("triton_poi_fused__unsafe_view_mul_silu_2", "elementwise"),
        ("my_own_kernel", "other"),
        ("", "other"),
    ],
)  # fmt: skip
def test_a_kernels_kind_is_read_off_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_very_long_name_is_no_trouble() -> None:
    """C++ templates give names of many kilobytes; a pattern that backtracks would take minutes over this one."""
    started = time.monotonic()
    assert kind_of("cutlass " * 4000 + "e4m3") == "gemm fp8"
    assert kind_of("triton_red_fused" + "_abs" * 8000) == "reduction"
    assert time.monotonic() - started < 2
