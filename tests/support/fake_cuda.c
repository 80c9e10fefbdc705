/*
 * A libcuda.so.1 for tests: a few functions of the driver's API that work without a GPU, and count what they are given.
 *
 * Each succeeds. cuLaunchKernel has the most arguments of the API, cuIpcOpenMemHandle_v2 a structure by value: both
 * return what they got, so that a test sees that an interceptor passes everything on.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef int CUresult;
typedef struct {
    char reserved[64];
} CUipcMemHandle;

CUresult cuInit(unsigned flags) { return (int)flags; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, 0; }
CUresult cuCtxSynchronize(void) { return 0; }
CUresult cuMemAlloc_v2(uint64_t *pointer, size_t size) { return *pointer = 4096 + size, 0; }

CUresult cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                        void **extra) {
    uint64_t given[] = {(uintptr_t)function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                        (uintptr_t)stream, (uintptr_t)extra};
    uint64_t *sum = (uint64_t *)parameters;
    *sum = 0;
    for (unsigned at = 0; at < sizeof given / sizeof *given; at++)
        *sum = *sum * 10 + given[at];
    return 0;
}

CUresult cuIpcOpenMemHandle_v2(uint64_t *pointer, CUipcMemHandle handle, unsigned flags) {
    *pointer = flags;
    for (unsigned at = 0; at < sizeof handle.reserved; at++)
        *pointer += (unsigned char)handle.reserved[at];
    return 0;
}

/* As the driver: version 12000 and newer get the function with the status. */
CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status);

CUresult cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, found, version, flags, 0);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status) {
    static const struct {
        const char *name;
        void *function;
    } known[] = {
        {"cuInit", cuInit},
        {"cuDeviceGetCount", cuDeviceGetCount},
        {"cuCtxSynchronize", cuCtxSynchronize},
        {"cuMemAlloc", cuMemAlloc_v2},
        {"cuLaunchKernel", cuLaunchKernel},
        {"cuIpcOpenMemHandle", cuIpcOpenMemHandle_v2},
    };
    (void)flags;
    *found = 0;
    for (unsigned at = 0; at < sizeof known / sizeof *known; at++)
        if (!strcmp(symbol, known[at].name))
            *found = known[at].function;
    if (!strcmp(symbol, "cuGetProcAddress"))
        *found = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    if (status)
        *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}
