// One small number per handle or descriptor of a library, by its pointer. Lock-free and bounded: if
// four pointers meet in one set, the oldest is forgotten.
#pragma once

#include <cstdint>

namespace plumbline::interpose {

constexpr uint32_t kNoValue = 0xffff'ffff;

void SetValue(uint64_t pointer, uint32_t value);
uint32_t ValueOf(uint64_t pointer);  // kNoValue: not known
void ForgetValue(uint64_t pointer);

}  // namespace plumbline::interpose
