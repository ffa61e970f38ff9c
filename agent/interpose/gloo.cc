// gloo, by the mangled names of its C++ functions. They may throw, through the wrapper: it has no
// state to restore.
#include "agent/interpose/interpose.h"

namespace plumbline::interpose {

#define PLUMB_GLOO(name, symbol)                                          \
  PLUMB_EXPORT void name(Word options) __asm__(symbol);                   \
  PLUMB_EXPORT void name(Word options) {                                  \
    const auto next = reinterpret_cast<void (*)(Word)>(                   \
        NextOf(CallFunction::name, symbol, __builtin_return_address(0))); \
    Count({.function = CallFunction::name});                              \
    return next(options);                                                 \
  }

PLUMB_GLOO(gloo_allreduce, "_ZN4gloo9allreduceERKNS_16AllreduceOptionsE")
PLUMB_GLOO(gloo_reduce, "_ZN4gloo6reduceERNS_13ReduceOptionsE")
PLUMB_GLOO(gloo_broadcast, "_ZN4gloo9broadcastERNS_16BroadcastOptionsE")
PLUMB_GLOO(gloo_allgather, "_ZN4gloo9allgatherERNS_16AllgatherOptionsE")
PLUMB_GLOO(gloo_barrier, "_ZN4gloo7barrierERNS_14BarrierOptionsE")

}  // namespace plumbline::interpose
