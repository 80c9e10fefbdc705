/*
 * A libnvidia-ml.so.1 for tests: every function answers from a text file, which is read anew on each call.
 *
 * The file is named by the environment variable MOCK_NVML_STATE. A line is `KEY VALUE`, and the last line of a key
 * counts. The keys are the names of NVML's functions, those of a GPU with its index before them and what it takes beside
 * the device behind them:
 *
 *     nvmlDeviceGetCount_v2 8
 *     0.nvmlDeviceGetPowerUsage 350500
 *     0.nvmlDeviceGetClockInfo.1 1755
 *     1.nvmlDeviceGetEccMode !15
 *
 * Values are in NVML's own units; `!15` is the error with that number in nvml.h. A key that is missing is
 * NVML_ERROR_NOT_SUPPORTED; a file that is missing, NVML_ERROR_DRIVER_NOT_LOADED. A function is left out of the library
 * with `-DNAME=without_NAME`, as the library of an older driver lacks it.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMED_OUT = 10,
    UNKNOWN = 999,
};

enum { LINE = 4096, KEY = 128, NO_ARGUMENT = -1 };

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t; /* the index plus one */

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int version;
    int margin;
} nvmlMarginTemperature_t;

typedef struct {
    unsigned int field, scope;
    long long timestamp, latency_us;
    int type;
    nvmlReturn_t result;
    union {
        double real;
        unsigned int number;
        unsigned long long wide;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
} nvmlProcessInfo_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} nvmlEventData_t;

static int clients;
static nvmlDevice_t watched; /* by the one event set that there is */
static unsigned long long watched_types;

static FILE *state(void)
{
    const char *path = getenv("MOCK_NVML_STATE");
    return path ? fopen(path, "r") : NULL;
}

/* Copy the value of a key, and return whether the file has it. */
static int find(const char *key, char *value)
{
    char line[LINE];
    size_t length = strlen(key);
    int found = 0;
    FILE *file = state();
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = '\0';
            strcpy(value, line + length + 1);
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}

/* Copy the text of a key, which is `name` or `GPU.name` or `GPU.name.argument`. */
static nvmlReturn_t text(nvmlDevice_t device, const char *name, long argument, char *value)
{
    char key[KEY];
    if (clients == 0)
        return UNINITIALIZED;
    if (!device)
        snprintf(key, sizeof key, "%s", name);
    else if (argument == NO_ARGUMENT)
        snprintf(key, sizeof key, "%ld.%s", (long)(intptr_t)device - 1, name);
    else
        snprintf(key, sizeof key, "%ld.%s.%ld", (long)(intptr_t)device - 1, name, argument);
    if (!find(key, value))
        return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : SUCCESS;
}

/* Fill `out` with the numbers of a key, and `count`, where there is one, with how many of `most` there are. */
static nvmlReturn_t numbers(nvmlDevice_t device, const char *name, long argument, unsigned long long *out, int most,
                            int *count)
{
    char value[LINE], *rest = value, *word;
    nvmlReturn_t result = text(device, name, argument, value);
    int filled = 0;
    if (result != SUCCESS)
        return result;
    while (filled < most && (word = strsep(&rest, " ")))
        out[filled++] = strtoull(word, NULL, 0);
    if (count)
        *count = filled;
    else if (filled < most)
        return UNKNOWN; /* a mistake in the file */
    return SUCCESS;
}

static nvmlReturn_t number(nvmlDevice_t device, const char *name, long argument, unsigned int *out)
{
    unsigned long long value;
    nvmlReturn_t result = numbers(device, name, argument, &value, 1, NULL);
    if (result == SUCCESS)
        *out = (unsigned int)value;
    return result;
}

static nvmlReturn_t string(nvmlDevice_t device, const char *name, char *out, unsigned int size)
{
    char value[LINE];
    nvmlReturn_t result = text(device, name, NO_ARGUMENT, value);
    if (result != SUCCESS)
        return result;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    char value[LINE];
    FILE *file = state();
    (void)flags;
    if (!file)
        return DRIVER_NOT_LOADED;
    fclose(file);
    if (find("nvmlInitWithFlags", value) && value[0] == '!')
        return atoi(value + 1);
    clients++;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    if (clients == 0)
        return UNINITIALIZED;
    clients--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    return result == SUCCESS ? "Success" : "Error of the mock library";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    return number(NULL, "nvmlDeviceGetCount_v2", NO_ARGUMENT, out);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    char value[LINE];
    unsigned int count;
    nvmlDevice_t device = (nvmlDevice_t)((intptr_t)index + 1);
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
    if (result != SUCCESS)
        return result;
    if (index >= count)
        return INVALID_ARGUMENT;
    result = text(device, "nvmlDeviceGetHandleByIndex_v2", NO_ARGUMENT, value);
    if (result != SUCCESS && result != NOT_SUPPORTED)
        return result;
    *out = device;
    return SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    return string(NULL, "nvmlSystemGetDriverVersion", out, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    return number(NULL, "nvmlSystemGetCudaDriverVersion", NO_ARGUMENT, (unsigned int *)out);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int size)
{
    return string(device, "nvmlDeviceGetUUID", out, size);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int size)
{
    return string(device, "nvmlDeviceGetName", out, size);
}

/* The value is NVML's own busId, `00000000:4E:00.0`. */
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    memset(out, 0, sizeof *out);
    nvmlReturn_t result = string(device, "nvmlDeviceGetPciInfo_v3", out->bus_id, sizeof out->bus_id);
    if (result == SUCCESS && sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
        return UNKNOWN;
    return result;
}

#define ONE_NUMBER(name)                                                                                               \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *out) { return number(device, #name, NO_ARGUMENT, out); }

ONE_NUMBER(nvmlDeviceGetPowerUsage)
ONE_NUMBER(nvmlDeviceGetEnforcedPowerLimit)
ONE_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
ONE_NUMBER(nvmlDeviceGetPowerManagementLimit)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
ONE_NUMBER(nvmlDeviceGetPcieReplayCounter)
ONE_NUMBER(nvmlDeviceGetPersistenceMode)

#define ONE_NUMBER_OF(name)                                                                                            \
    nvmlReturn_t name(nvmlDevice_t device, int which, unsigned int *out) { return number(device, #name, which, out); }

ONE_NUMBER_OF(nvmlDeviceGetTemperature)
ONE_NUMBER_OF(nvmlDeviceGetTemperatureThreshold)
ONE_NUMBER_OF(nvmlDeviceGetClockInfo)
ONE_NUMBER_OF(nvmlDeviceGetMaxClockInfo)

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out)
{
    return number(device, "nvmlDeviceGetMarginTemperature", NO_ARGUMENT, (unsigned int *)&out->margin);
}

#define ONE_MASK(name)                                                                                                 \
    nvmlReturn_t name(nvmlDevice_t device, unsigned long long *out)                                                   \
    {                                                                                                                  \
        return numbers(device, #name, NO_ARGUMENT, out, 1, NULL);                                                      \
    }

ONE_MASK(nvmlDeviceGetCurrentClocksEventReasons)
ONE_MASK(nvmlDeviceGetCurrentClocksThrottleReasons)

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    unsigned long long values[2];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetUtilizationRates", NO_ARGUMENT, values, 2, NULL);
    if (result == SUCCESS)
        *out = (nvmlUtilization_t){(unsigned int)values[0], (unsigned int)values[1]};
    return result;
}

/* The values are total, free and used bytes. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    unsigned long long values[3];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetMemoryInfo", NO_ARGUMENT, values, 3, NULL);
    if (result == SUCCESS)
        *out = (nvmlMemory_t){values[0], values[1], values[2]};
    return result;
}

/* The values are total, reserved, free and used bytes. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    unsigned long long values[4];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetMemoryInfo_v2", NO_ARGUMENT, values, 4, NULL);
    if (result == SUCCESS)
        *out = (nvmlMemory_v2_t){out->version, values[0], values[1], values[2], values[3]};
    return result;
}

/* The values are the two numbers of a compute capability. */
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    unsigned long long values[2];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetCudaComputeCapability", NO_ARGUMENT, values, 2, NULL);
    if (result == SUCCESS)
        *major = (int)values[0], *minor = (int)values[1];
    return result;
}

/* The values are the mode now and the mode after the next reset. */
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending)
{
    unsigned long long values[2];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetEccMode", NO_ARGUMENT, values, 2, NULL);
    if (result == SUCCESS)
        *current = (int)values[0], *pending = (int)values[1];
    return result;
}

/* The argument in the key is the kind of error; the counter is the volatile one only. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, unsigned long long *out)
{
    if (counter != 0)
        return NOT_SUPPORTED;
    return numbers(device, "nvmlDeviceGetTotalEccErrors", kind, out, 1, NULL);
}

/* The values are correctable, uncorrectable, pending and failed. */
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                       unsigned int *pending, unsigned int *failed)
{
    unsigned long long values[4];
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetRemappedRows", NO_ARGUMENT, values, 4, NULL);
    if (result == SUCCESS) {
        *correctable = (unsigned int)values[0], *uncorrectable = (unsigned int)values[1];
        *pending = (unsigned int)values[2], *failed = (unsigned int)values[3];
    }
    return result;
}

/* The values are the states of the GPU's links. */
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *out)
{
    unsigned long long values[64];
    int count;
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetNvLinkState", NO_ARGUMENT, values, 64, &count);
    if (result != SUCCESS)
        return result;
    if (link >= (unsigned int)count)
        return INVALID_ARGUMENT;
    *out = (unsigned int)values[link];
    return SUCCESS;
}

/* The values are words of 64 CPUs; those that the file leaves out are 0. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *out)
{
    unsigned long long values[64];
    int count;
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetCpuAffinity", NO_ARGUMENT, values, 64, &count);
    if (result != SUCCESS)
        return result;
    if (size < (unsigned int)count)
        return INSUFFICIENT_SIZE;
    for (unsigned int word = 0; word < size; word++)
        out[word] = word < (unsigned int)count ? (unsigned long)values[word] : 0;
    return SUCCESS;
}

/* The argument in the key is the field; each field has a result of its own. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    if (clients == 0)
        return UNINITIALIZED;
    for (int place = 0; place < count; place++)
        fields[place].result =
            number(device, "nvmlDeviceGetFieldValues", fields[place].field, &fields[place].value.number);
    return SUCCESS;
}

/* The values are process ids; 0 alone is none. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *size, nvmlProcessInfo_t *out)
{
    unsigned long long pids[64];
    int count;
    nvmlReturn_t result = numbers(device, "nvmlDeviceGetComputeRunningProcesses_v3", NO_ARGUMENT, pids, 64, &count);
    unsigned int room = *size;
    if (result != SUCCESS)
        return result;
    if (pids[0] == 0)
        count = 0;
    *size = (unsigned int)count;
    if (room < (unsigned int)count)
        return INSUFFICIENT_SIZE;
    for (int place = 0; place < count; place++)
        out[place] = (nvmlProcessInfo_t){.pid = (unsigned int)pids[place]};
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(void **set)
{
    *set = &watched;
    return clients ? SUCCESS : UNINITIALIZED;
}

nvmlReturn_t nvmlEventSetFree(void *set)
{
    watched = NULL;
    return set == &watched ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set)
{
    char value[LINE];
    nvmlReturn_t result = text(device, "nvmlDeviceRegisterEvents", NO_ARGUMENT, value);
    watched = device;
    watched_types = types;
    return result == NOT_SUPPORTED && set == &watched ? SUCCESS : result;
}

/* The value is the Xid; without one the time is up at once. */
nvmlReturn_t nvmlEventSetWait_v2(void *set, nvmlEventData_t *out, unsigned int timeout_ms)
{
    unsigned long long xid;
    nvmlReturn_t result = numbers(watched, "nvmlEventSetWait_v2", NO_ARGUMENT, &xid, 1, NULL);
    (void)set, (void)timeout_ms;
    if (result == SUCCESS)
        *out = (nvmlEventData_t){.device = watched, .type = watched_types, .data = xid};
    return result == NOT_SUPPORTED ? TIMED_OUT : result;
}
