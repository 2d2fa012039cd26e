/* What the test double of NVML (fake_nvml.c) is told to be: the scenario's lines, the devices, the clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int nvmlReturn_t;
typedef unsigned long long u64;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25
};
enum { GPUS = 16, INSTANCES = 8, RULES = 2048, NO_INSTANCE = 0 };

/* Handle of a GPU (instance 0) or of a MIG instance, counted from 1. */
struct device { int gpu, instance; };
static struct device devices[GPUS][INSTANCES];

static struct { long ms; int gpu, instance; char key[40]; long long value; } rules[RULES];
static int rule_count, open_count, gpu_count, open_samples, open_events;
static long long now_us, epoch_us;

static long long now(void) {
    struct timespec t;
    if (!epoch_us) return now_us;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000 - epoch_us;
}

void fake_nvml_set_ms(long ms) { now_us = ms * 1000LL; }
long long fake_nvml_us(void) { return now(); }
int fake_nvml_held(void) { return open_samples + open_events; }

static int matches(int i, struct device d) {
    return rules[i].gpu < 0 || (rules[i].gpu == d.gpu && rules[i].instance == d.instance);
}

static int find_at(struct device d, const char *key, long long us, long long *value) {
    int found = 0;
    for (int i = 0; i < rule_count; i++)
        if (rules[i].ms * 1000LL <= us && matches(i, d) && !strcmp(rules[i].key, key)) *value = rules[i].value, found = 1;
    return found;
}

static int find(struct device d, const char *key, long long *value) { return find_at(d, key, now(), value); }

static void wait_us(long long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    if (epoch_us) nanosleep(&t, NULL);
    else now_us += us;
}

static long long epoch(const char *path) {
    struct timespec t;
    long long us = 0;
    FILE *file;
    clock_gettime(CLOCK_REALTIME, &t);
    if ((file = fopen(path, "wx"))) fprintf(file, "%lld", us = t.tv_sec * 1000000LL + t.tv_nsec / 1000);
    else if ((file = fopen(path, "r")) && fscanf(file, "%lld", &us) != 1) us = 0;
    if (file) fclose(file);
    return us;
}

static void load(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO"), *clock = getenv("FAKE_NVML_EPOCH");
    FILE *file = path ? fopen(path, "r") : NULL;
    char device[16];
    epoch_us = clock ? epoch(clock) : 0;
    rule_count = 0, gpu_count = 4;
    while (file && rule_count < RULES && fscanf(file, "%ld %15s %39s %lld", &rules[rule_count].ms, device,
                                                rules[rule_count].key, &rules[rule_count].value) == 4) {
        rules[rule_count].gpu = -1, rules[rule_count].instance = NO_INSTANCE;
        sscanf(device, "%d.%d", &rules[rule_count].gpu, &rules[rule_count].instance);
        if (!strcmp(rules[rule_count].key, "gpus")) gpu_count = (int)rules[rule_count].value;
        rule_count++;
    }
    if (file) fclose(file);
    for (int g = 0; g < GPUS; g++)
        for (int i = 0; i < INSTANCES; i++) devices[g][i].gpu = g, devices[g][i].instance = i;
}
