/*
 * libgameday-cuda-error.so: lets the CUDA driver calls of a program fail while a file says so.
 *
 * The owners of a pod put it into the pod with LD_PRELOAD (docs/cuda-errors.md); until the file has a value, every
 * call goes to the driver as before. The file is named by GAMEDAY_CUDA_SWITCH, and holds one line or nothing:
 *
 *     v1 CODE UNTIL WHO MARK            v1 719 1795000000 running 5f0c9a41d2e7b830
 *
 * CODE   the CUresult that calls return from then on, 1 to 999
 * UNTIL  Unix seconds after which nothing new fails, at most an hour ahead: the value ends by itself
 * WHO    `running`: processes that ran before the value came; `all`: processes that start later, too
 * MARK   16 hexadecimal digits that name the value; they are in the line that this library prints
 *
 * gameday/values/cuda_switch.py reads the same line; tests/interception holds both to one table. A process that has
 * felt an error keeps it until it ends, as after a real one; a forked child begins anew.
 *
 * Calls are intercepted in the three ways in which programs come by them: by name (the list at the end), by dlsym, and by
 * cuGetProcAddress. The functions found by the last two need no prototypes here: each gets one of 1,024 stand-ins, which
 * pass on sixteen words, as many as the longest call needs, or return an int. All arguments of the driver's API are
 * integers, pointers, and structures that are passed like them; the two functions that take a float are left alone.
 */

#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAID "gpu-gameday cuda: "
#define VISIBLE __attribute__((visibility("default")))
#if defined(__has_attribute)
#if __has_attribute(musttail)
#define TAIL_CALL __attribute__((musttail)) return
#endif
#endif
#ifndef TAIL_CALL
#define TAIL_CALL return /* GCC before 15 makes it a jump with -O2, which this file must be compiled with */
#endif

enum { LINE = 128, MARK = 16, STAND_INS = 1024, LOOK_EVERY_MS = 200, LONGEST_S = 3600, NAME = 64 };
enum { SHARED_OBJECT_SYMBOL_NOT_FOUND = 302 };

typedef int CUresult;
typedef uintptr_t W;
#define TAKES W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k, W l, W m, W n, W o, W p
#define GIVES a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
typedef CUresult (*function)(TAKES);
typedef void *(*lookup)(void *, const char *);
typedef CUresult (*proc_address)(const char *, void **, int, uint64_t, void *);

typedef struct {
    int code;
    int64_t until;
    int all;
    char mark[MARK + 1];
} value;

static const char *switch_file;
static char mark_at_start[MARK + 1]; /* of the value that was there when this process began; empty: none was */
static _Atomic int felt;             /* the code that this process returns until it ends; 0: none */
static _Atomic int64_t next_look_ms;
static _Atomic int is_said;

/* The switch */

static const char *number(const char *text, int64_t most, int64_t *found) {
    if (*text < '1' || *text > '9')
        return NULL;
    for (*found = 0; *text >= '0' && *text <= '9'; text++)
        if ((*found = *found * 10 + (*text - '0')) > most)
            return NULL;
    return *text == ' ' ? text + 1 : NULL;
}

static int parse(const char *text, int64_t now, value *found) {
    int64_t code;
    if (strncmp(text, "v1 ", 3) || !(text = number(text + 3, 999, &code)))
        return 0;
    if (!(text = number(text, INT64_C(99999999999), &found->until)) || found->until > now + LONGEST_S)
        return 0;
    found->code = (int)code;
    found->all = !strncmp(text, "all ", 4);
    if (!found->all && strncmp(text, "running ", 8))
        return 0;
    text += found->all ? 4 : 8;
    if (strspn(text, "0123456789abcdef") != MARK || (text[MARK] && strcmp(text + MARK, "\n")))
        return 0;
    memcpy(found->mark, text, MARK);
    found->mark[MARK] = 0;
    return found->until > now;
}

static int read_switch_at(value *found, int64_t now) {
    char line[LINE];
    int file = switch_file ? open(switch_file, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size <= 0 || size == sizeof line - 1 || memchr(line, 0, (size_t)size))
        return 0;
    line[size] = 0;
    return parse(line, now, found);
}

static int read_switch(value *found) {
    return read_switch_at(found, time(NULL));
}

static void say(const char *words) {
    char line[256 + 512];
    int size = snprintf(line, sizeof line, SAID "%s, pid %d\n", words, (int)getpid());
    if (size > 0 && write(STDERR_FILENO, line, (size_t)size) < 0)
        return; /* nobody listens */
}

/* Once in each process that uses the driver: the proof that this library is loaded, which the agent looks for. */
static void say_ready(void) {
    if (atomic_exchange(&is_said, 1))
        return;
    char words[512];
    int file = switch_file ? open(switch_file, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0)
        snprintf(words, sizeof words, "ready, switch %.400s", switch_file);
    else if (switch_file)
        snprintf(words, sizeof words, "not ready: cannot read %.400s: %s", switch_file, strerror(errno));
    else
        snprintf(words, sizeof words, "not ready: GAMEDAY_CUDA_SWITCH names no file");
    if (file >= 0)
        close(file);
    say(words);
}

static void look(void) {
    value found;
    if (!read_switch(&found) || (!found.all && !strcmp(found.mark, mark_at_start)))
        return;
    int none = 0;
    if (atomic_compare_exchange_strong(&felt, &none, found.code)) {
        char words[128];
        snprintf(words, sizeof words, "error %d from now on, mark %s", found.code, found.mark);
        say(words);
    }
}

static int error_now(void) {
    int code = atomic_load_explicit(&felt, memory_order_relaxed);
    if (code)
        return code;
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
    int64_t now = (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
    int64_t due = atomic_load_explicit(&next_look_ms, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&next_look_ms, &due, now + LOOK_EVERY_MS))
        return 0;
    int kept = errno;
    look();
    errno = kept;
    return atomic_load_explicit(&felt, memory_order_relaxed);
}

static void begin(void) {
    value found;
    int has_value = read_switch(&found);
    memcpy(mark_at_start, has_value ? found.mark : "", has_value ? MARK + 1 : 1);
    atomic_store(&felt, 0);
    atomic_store(&next_look_ms, 0);
    atomic_store(&is_said, 0);
}

__attribute__((constructor)) static void on_load(void) {
    switch_file = getenv("GAMEDAY_CUDA_SWITCH");
    begin();
    pthread_atfork(NULL, NULL, begin);
}

/* The driver's functions */

/* What a process may still ask after a sticky error, and what the loader of the API needs: no work of the GPU. */
static int passes(const char *name) {
    static const char *const names[] = {
        "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable", "cuCtxGetCurrent",
        "cuCtxGetDevice", "cuCtxGetApiVersion", "cuDevicePrimaryCtxGetState", "cuTexRefSetMipmapLevelBias",
        "cuTexRefSetMipmapLevelClamp",
    };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        if (!strcmp(name, names[at]))
            return 1;
    return !strncmp(name, "cuDeviceGet", 11);
}

static _Atomic(function) real_of[STAND_INS];

#define STAND_IN(x)                                                                                                    \
    static CUresult stand_in_##x(TAKES) {                                                                              \
        int code = error_now();                                                                                        \
        return code ? code : atomic_load_explicit(&real_of[x], memory_order_acquire)(GIVES);                           \
    }
#define ADDRESS(x) stand_in_##x,
#define SIXTEEN(X, x)                                                                                                  \
    X(x##0) X(x##1) X(x##2) X(x##3) X(x##4) X(x##5) X(x##6) X(x##7) X(x##8) X(x##9) X(x##a) X(x##b) X(x##c) X(x##d)    \
    X(x##e) X(x##f)
#define ALL_OF(X, x)                                                                                                   \
    SIXTEEN(X, x##0) SIXTEEN(X, x##1) SIXTEEN(X, x##2) SIXTEEN(X, x##3) SIXTEEN(X, x##4) SIXTEEN(X, x##5)              \
    SIXTEEN(X, x##6) SIXTEEN(X, x##7) SIXTEEN(X, x##8) SIXTEEN(X, x##9) SIXTEEN(X, x##a) SIXTEEN(X, x##b)              \
    SIXTEEN(X, x##c) SIXTEEN(X, x##d) SIXTEEN(X, x##e) SIXTEEN(X, x##f)
ALL_OF(STAND_IN, 0x0) ALL_OF(STAND_IN, 0x1) ALL_OF(STAND_IN, 0x2) ALL_OF(STAND_IN, 0x3)
static const function stand_ins[STAND_INS] = {
    ALL_OF(ADDRESS, 0x0) ALL_OF(ADDRESS, 0x1) ALL_OF(ADDRESS, 0x2) ALL_OF(ADDRESS, 0x3)
};

static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

static void *stand_in_for(void *real) {
    void *found = real; /* where all stand-ins are taken: the driver's own function, which never fails */
    pthread_mutex_lock(&taking);
    for (int at = 0; at < STAND_INS; at++) {
        function taken = atomic_load(&real_of[at]);
        if (!taken)
            atomic_store_explicit(&real_of[at], (function)real, memory_order_release);
        if (!taken || taken == (function)real) {
            found = (void *)stand_ins[at];
            break;
        }
    }
    pthread_mutex_unlock(&taking);
    return found;
}

/* Two functions have two signatures, of which the older one does not have the last argument, and ignores it. */
static _Atomic(proc_address) real_proc_address[2];
static CUresult proc_address_0(const char *, void **, int, uint64_t, void *);
static CUresult proc_address_1(const char *, void **, int, uint64_t, void *);

static void *own_proc_address(void *real) {
    static const proc_address own[2] = {proc_address_0, proc_address_1};
    for (int at = 0; at < 2; at++) {
        proc_address taken = NULL;
        if (atomic_compare_exchange_strong(&real_proc_address[at], &taken, (proc_address)real) ||
            taken == (proc_address)real)
            return (void *)own[at];
    }
    return real;
}

static void *in_place_of(const char *name, void *real) {
    say_ready();
    if (!strncmp(name, "cuGetProcAddress", 16))
        return own_proc_address(real);
    return passes(name) ? real : stand_in_for(real);
}

static CUresult find(int at, const char *name, void **found, int version, uint64_t flags, void *status) {
    CUresult result = atomic_load(&real_proc_address[at])(name, found, version, flags, status);
    if (!result && name && found && *found)
        *found = in_place_of(name, *found);
    return result;
}
static CUresult proc_address_0(const char *name, void **found, int version, uint64_t flags, void *status) {
    return find(0, name, found, version, flags, status);
}
static CUresult proc_address_1(const char *name, void **found, int version, uint64_t flags, void *status) {
    return find(1, name, found, version, flags, status);
}

/* The loader */

static lookup real_dlsym(void) {
    static _Atomic(lookup) found;
    lookup known = atomic_load_explicit(&found, memory_order_acquire);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t at = 0; !known && at < sizeof versions / sizeof *versions; at++)
        known = (lookup)dlvsym(RTLD_NEXT, "dlsym", versions[at]);
    if (!known)
        abort();
    atomic_store_explicit(&found, known, memory_order_release);
    return known;
}

static int is_of_driver(void *found) {
    Dl_info about;
    if (!found || !dladdr(found, &about) || !about.dli_fname)
        return 0;
    const char *base = strrchr(about.dli_fname, '/');
    return !strncmp(base ? base + 1 : about.dli_fname, "libcuda.so", 10);
}

/* Programs that do not look for the driver get the very answer of the loader, which also asks who calls: hence a jump. */
VISIBLE void *dlsym(void *handle, const char *name) {
    lookup real = real_dlsym();
    if (name[0] != 'c' || name[1] != 'u' || !isupper((unsigned char)name[2]))
        TAIL_CALL real(handle, name);
    /* Never one of the functions below: a program without the driver must not find one. */
    void *found = real(handle == RTLD_DEFAULT ? RTLD_NEXT : handle, name);
    return is_of_driver(found) ? in_place_of(name, found) : found;
}

static void *linked(const char *name) {
    void *found = real_dlsym()(RTLD_NEXT, name);
    if (!found) {
        void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        found = driver ? real_dlsym()(driver, name) : NULL;
    }
    say_ready();
    return found;
}

#define EXPORTED(name)                                                                                                 \
    VISIBLE CUresult name(TAKES) {                                                                                     \
        static _Atomic(function) known;                                                                                \
        function real = atomic_load_explicit(&known, memory_order_acquire);                                            \
        if (!real) {                                                                                                   \
            real = (function)linked(#name);                                                                            \
            atomic_store_explicit(&known, real, memory_order_release);                                                 \
        }                                                                                                              \
        int code = error_now();                                                                                        \
        return code ? code : real ? real(GIVES) : SHARED_OBJECT_SYMBOL_NOT_FOUND;                                      \
    }

/* For programs that are linked with libcuda. cuInit and what else passes is not among them: it needs no stand-in. */
EXPORTED(cuCtxCreate_v2) EXPORTED(cuCtxCreate_v3) EXPORTED(cuCtxCreate_v4) EXPORTED(cuCtxDestroy_v2)
EXPORTED(cuCtxPushCurrent_v2) EXPORTED(cuCtxPopCurrent_v2) EXPORTED(cuCtxSetCurrent) EXPORTED(cuCtxSynchronize)
EXPORTED(cuDevicePrimaryCtxRetain) EXPORTED(cuDevicePrimaryCtxRelease_v2) EXPORTED(cuDevicePrimaryCtxReset_v2)
EXPORTED(cuModuleLoad) EXPORTED(cuModuleLoadData) EXPORTED(cuModuleLoadDataEx) EXPORTED(cuModuleLoadFatBinary)
EXPORTED(cuModuleUnload) EXPORTED(cuModuleGetFunction) EXPORTED(cuModuleGetGlobal_v2)
EXPORTED(cuLibraryLoadData) EXPORTED(cuLibraryUnload) EXPORTED(cuLibraryGetKernel) EXPORTED(cuKernelGetFunction)
EXPORTED(cuFuncGetAttribute) EXPORTED(cuFuncSetAttribute) EXPORTED(cuFuncSetCacheConfig)
EXPORTED(cuMemGetInfo_v2) EXPORTED(cuMemAlloc_v2) EXPORTED(cuMemAllocPitch_v2) EXPORTED(cuMemFree_v2)
EXPORTED(cuMemAllocHost_v2) EXPORTED(cuMemHostAlloc) EXPORTED(cuMemFreeHost) EXPORTED(cuMemHostRegister_v2)
EXPORTED(cuMemHostUnregister) EXPORTED(cuMemHostGetDevicePointer_v2) EXPORTED(cuMemAllocManaged)
EXPORTED(cuMemAllocAsync) EXPORTED(cuMemAllocAsync_ptsz) EXPORTED(cuMemFreeAsync) EXPORTED(cuMemFreeAsync_ptsz)
EXPORTED(cuMemCreate) EXPORTED(cuMemRelease) EXPORTED(cuMemMap) EXPORTED(cuMemUnmap) EXPORTED(cuMemSetAccess)
EXPORTED(cuMemAddressReserve) EXPORTED(cuMemAddressFree) EXPORTED(cuIpcOpenMemHandle_v2) EXPORTED(cuIpcGetMemHandle)
EXPORTED(cuIpcCloseMemHandle) EXPORTED(cuMemcpy) EXPORTED(cuMemcpy_ptds) EXPORTED(cuMemcpyAsync)
EXPORTED(cuMemcpyAsync_ptsz) EXPORTED(cuMemcpyPeer) EXPORTED(cuMemcpyPeerAsync) EXPORTED(cuMemcpyHtoD_v2)
EXPORTED(cuMemcpyHtoD_v2_ptds) EXPORTED(cuMemcpyDtoH_v2) EXPORTED(cuMemcpyDtoH_v2_ptds) EXPORTED(cuMemcpyDtoD_v2)
EXPORTED(cuMemcpyDtoD_v2_ptds) EXPORTED(cuMemcpyHtoDAsync_v2) EXPORTED(cuMemcpyHtoDAsync_v2_ptsz)
EXPORTED(cuMemcpyDtoHAsync_v2) EXPORTED(cuMemcpyDtoHAsync_v2_ptsz) EXPORTED(cuMemcpyDtoDAsync_v2)
EXPORTED(cuMemcpyDtoDAsync_v2_ptsz) EXPORTED(cuMemcpy2D_v2) EXPORTED(cuMemcpy2DAsync_v2) EXPORTED(cuMemcpy3D_v2)
EXPORTED(cuMemcpy3DAsync_v2) EXPORTED(cuMemsetD8_v2) EXPORTED(cuMemsetD32_v2) EXPORTED(cuMemsetD8Async)
EXPORTED(cuMemsetD8Async_ptsz) EXPORTED(cuMemsetD32Async) EXPORTED(cuMemsetD32Async_ptsz)
EXPORTED(cuStreamCreate) EXPORTED(cuStreamCreateWithPriority) EXPORTED(cuStreamDestroy_v2) EXPORTED(cuStreamSynchronize)
EXPORTED(cuStreamSynchronize_ptsz) EXPORTED(cuStreamQuery) EXPORTED(cuStreamQuery_ptsz) EXPORTED(cuStreamWaitEvent)
EXPORTED(cuStreamWaitEvent_ptsz) EXPORTED(cuLaunchHostFunc) EXPORTED(cuStreamBeginCapture_v2)
EXPORTED(cuStreamEndCapture) EXPORTED(cuEventCreate) EXPORTED(cuEventDestroy_v2) EXPORTED(cuEventRecord)
EXPORTED(cuEventRecord_ptsz) EXPORTED(cuEventSynchronize) EXPORTED(cuEventQuery) EXPORTED(cuEventElapsedTime)
EXPORTED(cuLaunchKernel) EXPORTED(cuLaunchKernel_ptsz) EXPORTED(cuLaunchKernelEx) EXPORTED(cuLaunchKernelEx_ptsz)
EXPORTED(cuLaunchCooperativeKernel) EXPORTED(cuLaunchCooperativeKernel_ptsz) EXPORTED(cuGraphInstantiateWithFlags)
EXPORTED(cuGraphLaunch) EXPORTED(cuGraphLaunch_ptsz)

/* A program that is linked with libcuda may still ask it for the rest. */
#define ASKS(name)                                                                                                     \
    VISIBLE CUresult name(const char *symbol, void **found, int version, uint64_t flags, void *status) {               \
        void *real = linked(#name);                                                                                    \
        if (!real)                                                                                                     \
            return SHARED_OBJECT_SYMBOL_NOT_FOUND;                                                                     \
        return ((proc_address)own_proc_address(real))(symbol, found, version, flags, status);                          \
    }
ASKS(cuGetProcAddress) ASKS(cuGetProcAddress_v2)
