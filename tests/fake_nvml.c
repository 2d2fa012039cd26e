/* A test double of NVIDIA's management library (libnvidia-ml.so.1), for machines without the driver.
 *
 * $FAKE_NVML_SCENARIO names a text file of lines `<ms> <device> <key> <value>`: from that time on the key has that
 * value, for GPU `0`, for instance 1 of GPU 0 `0.1` (MIG), or for all `*`. UUIDs are GPU-fake-0 and MIG-fake-0-1.
 *
 *   err.<counter> <nvmlReturn_t>   that counter's call fails; `err.*`: every call on that device; `err.init`: nvmlInit
 *   delay.<counter> <us>           that counter's call takes so long
 *   process.<pid> <bytes>          a process computes there; 0: no more; -1: the driver does not tell its memory
 *   gpm.<metric id> <1/1000 %>     a GPM metric; gpm.support 1: the device has GPM
 *   xid <number>                   an event, at that time
 *   pci_bus <number>               where the GPU sits; without it GPU n has bus n + 1
 *   model <number>                 its name is NVIDIA Fake <number>
 *   capability <number>            100 * major + minor of its compute capability; without it 900
 *
 * Counters of newer drivers that no line names are not supported; the older ones read 0. Time stands still unless
 * fake_nvml_set_ms moves it, and a delay moves it too; with $FAKE_NVML_EPOCH it is the wall clock since the Unix time
 * (us) in the file of that name, which the first process to start NVML writes. Compiled with -DOLD_DRIVER it lacks the
 * calls that older drivers lack.
 */
#include <limits.h>

#include "fake_nvml_scenario.h"

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    long long error = 0;
    struct device all = {-1, NO_INSTANCE};
    (void)flags;
    load();
    if (find(all, "err.init", &error) && error) return (nvmlReturn_t)error;
    open_count++;
    return SUCCESS;
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { return open_count-- > 0 ? SUCCESS : UNINITIALIZED; }

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    case VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t text(const char *value, char *out, unsigned length) {
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) { return text("999.0-fake", out, length); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (!open_count) return UNINITIALIZED;
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **handle) {
    if (!open_count) return UNINITIALIZED;
    if (index >= (unsigned)gpu_count) return INVALID_ARGUMENT;
    *handle = &devices[index][NO_INSTANCE];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, struct device **handle) {
    int gpu = -1, instance = NO_INSTANCE, whole = 0;
    if (!open_count) return UNINITIALIZED;
    sscanf(uuid, "GPU-fake-%d%n", &gpu, &whole);
    if (!whole) sscanf(uuid, "MIG-fake-%d-%d%n", &gpu, &instance, &whole);
    if (!whole || uuid[whole]) return NOT_FOUND;
    if (gpu < 0 || gpu >= gpu_count || instance < 0 || instance >= INSTANCES) return NOT_FOUND;
    *handle = &devices[gpu][instance];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *mig, struct device **handle) {
    if (!mig->instance) return INVALID_ARGUMENT;
    *handle = &devices[mig->gpu][NO_INSTANCE];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(struct device *mig, unsigned *id) {
    if (!mig->instance) return NOT_SUPPORTED;
    *id = (unsigned)mig->instance;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(struct device *d, unsigned *is) { *is = d->instance != 0; return SUCCESS; }
nvmlReturn_t nvmlDeviceGetIndex(struct device *d, unsigned *index) { *index = (unsigned)d->gpu; return SUCCESS; }

nvmlReturn_t nvmlDeviceGetName(struct device *d, char *out, unsigned n) {
    long long model = 0;
    char name[40] = "NVIDIA Fake";
    if (find(*d, "model", &model)) snprintf(name, sizeof name, "NVIDIA Fake %lld", model);
    return text(name, out, n);
}

nvmlReturn_t nvmlDeviceGetUUID(struct device *d, char *out, unsigned n) {
    if (d->instance) snprintf(out, n, "MIG-fake-%d-%d", d->gpu, d->instance);
    else snprintf(out, n, "GPU-fake-%d", d->gpu);
    return SUCCESS;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };

nvmlReturn_t nvmlDeviceGetPciInfo_v3(struct device *d, struct pci *pci) {
    long long bus = d->gpu + 1;
    find(*d, "pci_bus", &bus);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)bus;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->name, sizeof pci->name, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(struct device *d, int *major, int *minor) {
    long long capability = 900;
    find(*d, "capability", &capability);
    *major = (int)capability / 100, *minor = (int)capability % 100;
    return SUCCESS;
}

/* Whether a call for `counter` on a device works, after the delay that the scenario sets for it. */
static nvmlReturn_t check(struct device *d, const char *counter) {
    char name[48];
    long long error = 0, delay = 0;
    if (!open_count) return UNINITIALIZED;
    if (!d || d < &devices[0][0] || d > &devices[GPUS - 1][INSTANCES - 1]) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "delay.%s", counter);
    if (find(*d, name, &delay)) wait_us(delay);
    snprintf(name, sizeof name, "err.%s", counter);
    if ((find(*d, "err.*", &error) && error) || (find(*d, name, &error) && error)) return (nvmlReturn_t)error;
    return SUCCESS;
}

/* The value of `key`. A MIG instance has memory of its own and nothing else. */
static nvmlReturn_t value_of(struct device *d, const char *counter, const char *key, int is_new, long long *value) {
    nvmlReturn_t code = check(d, counter);
    if (code) return code;
    if (d->instance && strcmp(counter, "memory")) return strcmp(counter, "utilization") ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *value = 0;
    return find(*d, key, value) || !is_new ? SUCCESS : NOT_SUPPORTED;
}

static nvmlReturn_t unsigned_of(struct device *d, const char *counter, unsigned *out) {
    long long value;
    nvmlReturn_t code = value_of(d, counter, counter, 0, &value);
    if (code == SUCCESS) *out = (unsigned)value;
    return code;
}

static nvmlReturn_t wide_of(struct device *d, const char *counter, const char *key, u64 *out) {
    long long value;
    nvmlReturn_t code = value_of(d, counter, key, 0, &value);
    if (code == SUCCESS) *out = (u64)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(struct device *d, unsigned out[2]) {
    nvmlReturn_t code = unsigned_of(d, "utilization", &out[0]);
    if (code == SUCCESS) out[1] = 0;
    return code;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(struct device *d, unsigned *mw) { return unsigned_of(d, "power", mw); }
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(struct device *d, u64 *mj) { return wide_of(d, "energy", "energy", mj); }
nvmlReturn_t nvmlDeviceGetClockInfo(struct device *d, int type, unsigned *mhz) {
    return unsigned_of(d, type == 1 ? "sm_clock" : "memory_clock", mhz);
}
nvmlReturn_t nvmlDeviceGetTemperature(struct device *d, int sensor, unsigned *celsius) {
    return sensor ? INVALID_ARGUMENT : unsigned_of(d, "temperature", celsius);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, u64 *reasons) {
    return wide_of(d, "throttle_reasons", "throttle_reasons", reasons);
}

struct memory_v1 { u64 total, free, used; };

/* Here what the driver keeps for itself is among what is used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(struct device *d, struct memory_v1 *memory) {
    u64 reserved = 0;
    nvmlReturn_t code;
    if ((code = wide_of(d, "memory", "memory_total", &memory->total))) return code;
    if ((code = wide_of(d, "memory", "memory_reserved", &reserved))) return code;
    if ((code = wide_of(d, "memory", "memory_used", &memory->used))) return code;
    memory->used += reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Totals since the driver was loaded (0), or of the board's whole life (1), a million more here. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(struct device *d, int type, int lifetime, u64 *count) {
    long long value;
    nvmlReturn_t code;
    if (type < 0 || type > 1 || lifetime < 0 || lifetime > 1) return INVALID_ARGUMENT;
    if ((code = value_of(d, "ecc", type ? "ecc_uncorrected" : "ecc_corrected", 1, &value))) return code;
    *count = (u64)value + (lifetime ? 1000000 : 0);
    return SUCCESS;
}

struct process { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; };

static nvmlReturn_t running(struct device *d, unsigned *count, struct process *out) {
    unsigned room = *count, listed = 0;
    nvmlReturn_t code = check(d, "processes");
    if (code) return code;
    for (int i = 0; i < rule_count; i++) {
        unsigned pid;
        long long bytes = 0;
        int first = 1;
        if (sscanf(rules[i].key, "process.%u", &pid) != 1 || !matches(i, *d)) continue;
        for (int j = 0; j < i; j++) first &= strcmp(rules[j].key, rules[i].key) || !matches(j, *d);
        if (!first || !find(*d, rules[i].key, &bytes) || !bytes) continue;
        if (out && listed < room) out[listed] = (struct process){pid, (u64)bytes, UINT_MAX, UINT_MAX};
        listed++;
    }
    *count = listed;
    return listed > room || (listed && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, unsigned *count, struct process *out) {
    return running(d, count, out);
}

struct event_set { struct device *device; long long since; char told[RULES]; };
struct event { struct device *device; u64 type, data; unsigned gpu_instance, compute_instance; };

nvmlReturn_t nvmlEventSetCreate(struct event_set **set) {
    if (!open_count) return UNINITIALIZED;
    *set = calloc(1, sizeof **set), open_events++;
    return SUCCESS;
}
nvmlReturn_t nvmlEventSetFree(struct event_set *set) { free(set), open_events--; return SUCCESS; }

nvmlReturn_t nvmlDeviceRegisterEvents(struct device *d, u64 types, struct event_set *set) {
    nvmlReturn_t code = check(d, "xid");
    if (code) return code;
    if (!set || d->instance) return INVALID_ARGUMENT;
    if (types != 8) return NOT_SUPPORTED;
    set->device = d, set->since = now();
    return SUCCESS;
}

/* Events before they were asked for are not recorded. A wait that finds none takes its whole time. */
nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, struct event *data, unsigned timeout_ms) {
    nvmlReturn_t code;
    if (!open_count) return UNINITIALIZED;
    if (!set || !data) return INVALID_ARGUMENT;
    for (int i = 0; set->device && i < rule_count; i++) {
        long long at = rules[i].ms * 1000LL;
        if (strcmp(rules[i].key, "xid") || !matches(i, *set->device) || set->told[i]) continue;
        if (at < set->since || at > now()) continue;
        set->told[i] = 1;
        *data = (struct event){set->device, 8, (u64)rules[i].value, UINT_MAX, UINT_MAX};
        return SUCCESS;
    }
    if (set->device && (code = check(set->device, "events"))) return code;
    wait_us(timeout_ms * 1000LL);
    return TIMEOUT;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *count, struct process *out) {
    return running(d, count, out);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(struct device *d, u64 *reasons) {
    return wide_of(d, "throttle_reasons", "throttle_reasons", reasons);
}

struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_v2 *memory) {
    nvmlReturn_t code;
    if (memory->version != 0x02000028) return VERSION_MISMATCH;
    if ((code = wide_of(d, "memory", "memory_total", &memory->total))) return code;
    if ((code = wide_of(d, "memory", "memory_reserved", &memory->reserved))) return code;
    if ((code = wide_of(d, "memory", "memory_used", &memory->used))) return code;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct temperature_v1 { unsigned version; int sensor; int celsius; };

nvmlReturn_t nvmlDeviceGetTemperatureV(struct device *d, struct temperature_v1 *reading) {
    unsigned celsius;
    nvmlReturn_t code;
    if (reading->version != 0x0100000C) return VERSION_MISMATCH;
    if ((code = nvmlDeviceGetTemperature(d, reading->sensor, &celsius)) == SUCCESS) reading->celsius = (int)celsius;
    return code;
}

struct field { unsigned id, scope; long long timestamp, latency_us; unsigned type, code; u64 value; };

/* Succeeds as a whole; each field says for itself whether it is there. NVLink counts KiB, over all links here. */
nvmlReturn_t nvmlDeviceGetFieldValues(struct device *d, int count, struct field *fields) {
    nvmlReturn_t code = check(d, "fields");
    if (code) return code;
    if (count < 1 || !fields) return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        unsigned id = fields[i].id;
        const char *link = id == 138 ? "nvlink_tx" : id == 139 ? "nvlink_rx" : "";
        const char *key = id == 197 ? "pcie_tx" : id == 198 ? "pcie_rx" : link;
        long long value = 0;
        fields[i].code = (unsigned)(*key ? value_of(d, key, key, 1, &value) : NOT_SUPPORTED);
        if (*key == 'n' && fields[i].scope != UINT_MAX) fields[i].code = INVALID_ARGUMENT;
        fields[i].type = 3, fields[i].value = (u64)value, fields[i].timestamp = now();
    }
    return SUCCESS;
}

#include "fake_nvml_gpm.h"
#endif
