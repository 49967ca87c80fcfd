/* Every symbol resolves, by the dynamic linker and by cuGetProcAddress.  usage: symbols < names */
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>

int main(void)
{
    char name[200];
    int found = 0, why;
    void *to, *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library && dlopen("libnvidia-ml.so.1", RTLD_NOW) == library);
    CHECK(dlsym(library, "nvmlInit_v2"));
    while (scanf("%199s", name) == 1) {
        char *variant = strstr(name, "_v"), *twin = strstr(name, "_pt");
        if (!dlsym(library, name)) {
            fprintf(stderr, "no %s\n", name);
            return 1;
        }
        if (variant && variant[2] >= '0' && variant[2] <= '9')
            *variant = 0;
        else if (twin)
            *twin = 0;
        OK(cuGetProcAddress_v2(name, &to, 13050, 0, &why));
        if (!to || why) {
            fprintf(stderr, "cuGetProcAddress knows no %s: %d\n", name, why);
            return 1;
        }
        found++;
    }
    OK(cuGetProcAddress_v2("cuMemcpyHtoD", &to, 12000, 2, &why));
    CHECK(to == dlsym(library, "cuMemcpyHtoD_v2_ptds") && why == 0);
    OK(cuGetProcAddress_v2("cuNothingAtAll", &to, 12000, 0, &why));
    CHECK(to == 0 && why == 1);
    printf("%d names\n", found);
    return 0;
}
