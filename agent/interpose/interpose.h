// The wrapper of an interposed function. Each integer or pointer argument is a Word: a 64-bit word
// is forwarded with all its bits, so that one wrapper serves 32-bit and 64-bit integers (x86-64 and
// AArch64 pass both in one register or one stack slot). Floating arguments have their own types.
#pragma once

#include <cstdint>

#include "agent/interpose/next.h"
#include "agent/interpose/table.h"

#define PLUMB_EXPORT extern "C" __attribute__((visibility("default")))

// Defines `name`, which runs `note` before an outermost call and forwards it.
#define PLUMB_INTERPOSE(ret, name, parameters, arguments, note)                           \
  PLUMB_EXPORT ret name parameters {                                                      \
    const auto next = reinterpret_cast<ret(*) parameters>(::plumbline::interpose::NextOf( \
        ::plumbline::CallFunction::name, #name, __builtin_return_address(0)));            \
    const ::plumbline::interpose::Call call(__builtin_frame_address(0));                  \
    if (call.outermost()) {                                                               \
      note;                                                                               \
    }                                                                                     \
    return next arguments;                                                                \
  }

namespace plumbline::interpose {

using Word = uint64_t;

inline int AsInt(Word w) { return static_cast<int>(static_cast<uint32_t>(w)); }
inline uint8_t AsByte(Word w) { return static_cast<uint8_t>(w); }

// The innermost wrapper of a thread, by its stack frame. A call within another one has a lower
// frame. A frame that was left by longjmp or an exception is above the next one and does not count.
extern __thread char* outermost_frame;

class Call {
 public:
  explicit Call(void* frame)
      : before_(outermost_frame),
        outermost_(before_ == nullptr || static_cast<char*>(frame) >= before_) {
    if (outermost_) outermost_frame = static_cast<char*>(frame);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (outermost_) outermost_frame = nullptr;
  }
  bool outermost() const { return outermost_; }

 private:
  char* before_;
  bool outermost_;
};

}  // namespace plumbline::interpose
