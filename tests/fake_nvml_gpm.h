/* GPM in the test double of NVML (fake_nvml.c): means between two samples of what the scenario says. */
#include <math.h>

struct gpm_sample { struct device device; long long us; };
struct gpm_metric { unsigned id; nvmlReturn_t code; double value; const char *names[3]; };
struct gpm_metrics { unsigned version, count; struct gpm_sample *first, *second; struct gpm_metric metrics[]; };
struct gpm_support { unsigned version, supported; };

nvmlReturn_t nvmlGpmQueryDeviceSupport(struct device *d, struct gpm_support *support) {
    long long value = 0;
    nvmlReturn_t code = check(d, "gpm");
    if (code) return code;
    if (support->version != 1) return VERSION_MISMATCH;
    find(*d, "gpm.support", &value);
    support->supported = (unsigned)value;
    return SUCCESS;
}
nvmlReturn_t nvmlGpmSampleAlloc(struct gpm_sample **sample) {
    *sample = calloc(1, sizeof **sample), open_samples++;
    (*sample)->us = -1;
    return SUCCESS;
}
nvmlReturn_t nvmlGpmSampleFree(struct gpm_sample *sample) { free(sample), open_samples--; return SUCCESS; }

nvmlReturn_t nvmlGpmMigSampleGet(struct device *d, unsigned instance, struct gpm_sample *sample) {
    nvmlReturn_t code = check(d, "gpm");
    if (code) return code;
    if (d->instance || instance >= INSTANCES || !sample) return INVALID_ARGUMENT;
    sample->device = devices[d->gpu][instance], sample->us = now();
    return SUCCESS;
}
nvmlReturn_t nvmlGpmSampleGet(struct device *d, struct gpm_sample *sample) { return nvmlGpmMigSampleGet(d, 0, sample); }

/* The mean of a step function, its lines in order of time; what it may be over less than 100 ms, none can rely on. */
static double mean(struct device d, const char *key, long long from, long long to) {
    double sum = 0;
    long long value = 0, at = from;
    if (to - from < 100000) return NAN;
    find_at(d, key, from, &value);
    for (int i = 0; i < rule_count; i++) {
        long long us = rules[i].ms * 1000LL;
        if (us <= from || us >= to || strcmp(rules[i].key, key) || !matches(i, d)) continue;
        sum += (double)value * (double)(us - at), at = us, value = rules[i].value;
    }
    return (sum + (double)value * (double)(to - at)) / (double)(to - from) / 1000;
}

nvmlReturn_t nvmlGpmMetricsGet(struct gpm_metrics *get) {
    struct gpm_sample *a = get->first, *b = get->second;
    if (get->version != 1) return VERSION_MISMATCH;
    if (!a || !b || a->us < 0 || b->us < a->us || memcmp(&a->device, &b->device, sizeof a->device)) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < get->count; i++) {
        struct gpm_metric *metric = &get->metrics[i];
        char key[40];
        long long value;
        snprintf(key, sizeof key, "gpm.%u", metric->id);
        metric->code = find_at(a->device, key, b->us, &value) ? SUCCESS : NOT_SUPPORTED;
        if (metric->code == SUCCESS) metric->value = mean(a->device, key, a->us, b->us);
    }
    return SUCCESS;
}
