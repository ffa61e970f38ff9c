// When preloaded, it makes a process look as if it ran under AddressSanitizer.
extern "C" __attribute__((visibility("default"))) void __asan_init() {}
