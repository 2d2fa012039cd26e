/* A test double of NVIDIA's management library (libnvidia-ml.so.1), for machines without the driver.
 *
 * $FAKE_NVML_SCENARIO names a text file of lines `<ms> <gpu> <key> <value>`: from that time on the key has that value,
 * for one GPU or for all (`*`). A key `err.<counter>` makes that counter's call fail with the given nvmlReturn_t;
 * `err.*` every call on that GPU; `err.init` nvmlInit. Time stands still unless fake_nvml_set_ms moves it.
 * Compiled with -DOLD_DRIVER it lacks the calls that older drivers lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvmlReturn_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, VERSION_MISMATCH = 25 };
enum { GPUS = 4, RULES = 256 };

static struct { long ms; int gpu; char key[40]; long long value; } rules[RULES];
static int rule_count, open_count;
static long now_ms;
static int handles[GPUS];

void fake_nvml_set_ms(long ms) { now_ms = ms; }

static int find(int gpu, const char *key, long long *value) {
    int found = 0;
    for (int i = 0; i < rule_count; i++)
        if (rules[i].ms <= now_ms && (rules[i].gpu == gpu || rules[i].gpu < 0) && !strcmp(rules[i].key, key))
            *value = rules[i].value, found = 1;
    return found;
}

static void load(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char gpu[16];
    rule_count = 0;
    while (file && rule_count < RULES && fscanf(file, "%ld %15s %39s %lld", &rules[rule_count].ms, gpu,
                                                rules[rule_count].key, &rules[rule_count].value) == 4)
        rules[rule_count++].gpu = gpu[0] == '*' ? -1 : atoi(gpu);
    if (file) fclose(file);
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    long long error = 0;
    (void)flags;
    load();
    if (find(-1, "err.init", &error) && error) return (nvmlReturn_t)error;
    open_count++;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) { return open_count-- > 0 ? SUCCESS : UNINITIALIZED; }

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "999.0-fake");
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, int **handle) {
    int gpu;
    if (!open_count) return UNINITIALIZED;
    if (sscanf(uuid, "GPU-fake-%d", &gpu) != 1 || gpu < 0 || gpu >= GPUS) return NOT_FOUND;
    *handle = &handles[gpu];
    return SUCCESS;
}

/* The value of `key` on a device, or the error that the scenario sets for `counter`. */
static nvmlReturn_t value_of(int *handle, const char *counter, const char *key, long long *value) {
    char name[48];
    long long error = 0;
    int gpu = (int)(handle - handles);
    if (!open_count) return UNINITIALIZED;
    if (gpu < 0 || gpu >= GPUS) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "err.%s", counter);
    if ((find(gpu, "err.*", &error) && error) || (find(gpu, name, &error) && error)) return (nvmlReturn_t)error;
    *value = 0;
    find(gpu, key, value);
    return SUCCESS;
}

static nvmlReturn_t unsigned_of(int *handle, const char *counter, unsigned *out) {
    long long value;
    nvmlReturn_t code = value_of(handle, counter, counter, &value);
    if (code == SUCCESS) *out = (unsigned)value;
    return code;
}

static nvmlReturn_t wide_of(int *handle, const char *counter, const char *key, unsigned long long *out) {
    long long value;
    nvmlReturn_t code = value_of(handle, counter, key, &value);
    if (code == SUCCESS) *out = (unsigned long long)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(int *handle, unsigned out[2]) {
    nvmlReturn_t code = unsigned_of(handle, "utilization", &out[0]);
    if (code == SUCCESS) out[1] = 0;
    return code;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(int *handle, unsigned *mw) { return unsigned_of(handle, "power", mw); }

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(int *handle, unsigned long long *mj) {
    return wide_of(handle, "energy", "energy", mj);
}

nvmlReturn_t nvmlDeviceGetClockInfo(int *handle, int type, unsigned *mhz) {
    return unsigned_of(handle, type == 1 ? "sm_clock" : "memory_clock", mhz);
}

nvmlReturn_t nvmlDeviceGetTemperature(int *handle, int sensor, unsigned *celsius) {
    return sensor ? INVALID_ARGUMENT : unsigned_of(handle, "temperature", celsius);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(int *handle, unsigned long long *reasons) {
    return wide_of(handle, "throttle_reasons", "throttle_reasons", reasons);
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(int *handle, unsigned long long *reasons) {
    return wide_of(handle, "throttle_reasons", "throttle_reasons", reasons);
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(int *handle, struct memory_v2 *memory) {
    nvmlReturn_t code;
    if (memory->version != 0x02000028) return VERSION_MISMATCH;
    if ((code = wide_of(handle, "memory", "memory_total", &memory->total))) return code;
    if ((code = wide_of(handle, "memory", "memory_reserved", &memory->reserved))) return code;
    if ((code = wide_of(handle, "memory", "memory_used", &memory->used))) return code;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct temperature_v1 { unsigned version; int sensor; int celsius; };

nvmlReturn_t nvmlDeviceGetTemperatureV(int *handle, struct temperature_v1 *reading) {
    unsigned celsius;
    nvmlReturn_t code = nvmlDeviceGetTemperature(handle, reading->sensor, &celsius);
    if (code == SUCCESS) reading->celsius = (int)celsius;
    return code;
}
#endif
