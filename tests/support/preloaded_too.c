/* Another preloaded library, for tests: it finds what it stands in for by RTLD_NEXT, which asks the loader who calls. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/types.h>

pid_t getppid(void) {
    pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
    return real == getppid ? -1 : real() < 0 ? -1 : 4711;
}
