"""Kernel names as real traces and libraries have them, and what each does."""

import pytest

from stepscope.analyzers.kinds import kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "communication"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclSymkDevKernel_ReduceScatter_LD", "communication"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>)", "attention"),
        ("attn_fwd", "attention"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1", "gemm fp8"),
        ("nvjet_qqtst_128x256_128x4_2x1_v_bz_coopA_scaleA1_scaleB1_TNT_e4m3", "gemm fp8"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::float_e4m3_t>>", "gemm fp8"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment", "gemm"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>", "gemm"),
        ("volta_sgemm_32x32_sliced1x4_tn", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0", "gemm"),
        ("void splitKreduce_kernel<float, float, float, float, true, false, false>", "gemm"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false>", "gemm"),
        ("triton_red_fused_abs_amax_0", "fp8 cast and scale"),
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
