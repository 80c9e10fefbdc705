/*
 * A program that uses CUDA's driver, for tests: cuda_job {linked | dlsym | asks | asks-old | none}.
 *
 * The word says how it comes by the functions: linked with libcuda.so.1 (compiled with -DLINKED), by dlopen and dlsym, or
 * by cuGetProcAddress as CUDA's runtime does, of the newer signature or the older one. `none` uses no CUDA. For each line
 * on its standard input it prints one line: `call` the results of its calls, `threads` those of eight threads, `fork`
 * those of a forked child, `free` those of the functions that a process may still call after an error.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int CUresult;
typedef struct {
    char reserved[64];
} CUipcMemHandle;
typedef CUresult (*ask)(const char *, void **, int, uint64_t);
typedef CUresult (*ask_v2)(const char *, void **, int, uint64_t, int *);

static struct {
    CUresult (*init)(unsigned);
    CUresult (*count)(int *);
    CUresult (*synchronize)(void);
    CUresult (*allocate)(uint64_t *, size_t);
    CUresult (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                       void **);
    CUresult (*open)(uint64_t *, CUipcMemHandle, unsigned);
} cuda;

#ifdef LINKED
CUresult cuInit(unsigned);
CUresult cuDeviceGetCount(int *);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(uint64_t *, size_t);
CUresult cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
CUresult cuIpcOpenMemHandle_v2(uint64_t *, CUipcMemHandle, unsigned);
#endif

static void *driver;
static ask_v2 newer;
static ask older;

static void *get(const char *name, const char *versioned) {
    void *found = NULL;
    int status = 0;
    if (newer)
        newer(name, &found, 12000, 0, &status);
    else if (older)
        older(name, &found, 11030, 0);
    else
        found = dlsym(driver, versioned);
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

static void begin(const char *how) {
#ifdef LINKED
    cuda.init = cuInit, cuda.count = cuDeviceGetCount, cuda.synchronize = cuCtxSynchronize;
    cuda.allocate = cuMemAlloc_v2, cuda.launch = cuLaunchKernel, cuda.open = cuIpcOpenMemHandle_v2;
    if (!strcmp(how, "linked"))
        return;
#endif
    if (!(driver = dlopen("libcuda.so.1", RTLD_NOW))) {
        puts(dlerror());
        exit(1);
    }
    if (!strcmp(how, "asks")) {
        /* CUDA's runtime asks the function for itself, too. */
        ask_v2 first = (ask_v2)dlsym(driver, "cuGetProcAddress_v2");
        int status;
        first("cuGetProcAddress", (void **)&newer, 12000, 0, &status);
    } else if (!strcmp(how, "asks-old"))
        older = (ask)dlsym(driver, "cuGetProcAddress");
    cuda.init = get("cuInit", "cuInit");
    cuda.count = get("cuDeviceGetCount", "cuDeviceGetCount");
    cuda.synchronize = get("cuCtxSynchronize", "cuCtxSynchronize");
    cuda.allocate = get("cuMemAlloc", "cuMemAlloc_v2");
    cuda.launch = get("cuLaunchKernel", "cuLaunchKernel");
    cuda.open = get("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2");
}

/* 0 where all calls succeeded and were given what they should; the code where each failed with it; else -1. */
static int call(void) {
    uint64_t pointer = 0, opened = 0, sum[1] = {0};
    CUipcMemHandle handle;
    memset(&handle, 3, sizeof handle);
    int synchronized = cuda.synchronize();
    int allocated = cuda.allocate(&pointer, 64);
    int launched = cuda.launch((void *)1, 2, 3, 4, 5, 6, 7, 8, (void *)9, (void **)sum, (void *)1);
    int open = cuda.open(&opened, handle, 8);
    if (synchronized != allocated || allocated != launched || launched != open)
        return -1;
    if (!open && (pointer != 4160 || opened != 200 || sum[0] != 1234567891))
        return -1;
    if (open && (pointer || opened || sum[0]))
        return -1;
    return open;
}

static void *in_thread(void *result) {
    *(int *)result = call();
    return NULL;
}

int main(int argc, char **argv) {
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    int has_cuda = argc > 1 && strcmp(argv[1], "none");
    if (has_cuda)
        begin(argv[1]);
    while (fgets(line, sizeof line, stdin)) {
        if (!has_cuda)
            printf("%d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL || dlsym(RTLD_DEFAULT, "cuCtxSynchronize") != NULL);
        else if (!strcmp(line, "call\n"))
            printf("%d\n", call());
        else if (!strcmp(line, "free\n")) {
            int count = 0, begun = cuda.init(0), counted = cuda.count(&count);
            printf("%d %d %d\n", begun, counted, count);
        } else if (!strcmp(line, "threads\n")) {
            pthread_t threads[8];
            int results[8];
            for (int at = 0; at < 8; at++)
                pthread_create(&threads[at], NULL, in_thread, &results[at]);
            for (int at = 0; at < 8; at++) {
                pthread_join(threads[at], NULL);
                printf("%d%s", results[at], at < 7 ? " " : "\n");
            }
        } else if (!strcmp(line, "fork\n")) {
            fflush(stdout);
            pid_t child = fork();
            if (!child) {
                printf("%d\n", call());
                fflush(stdout);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
    return 0;
}
