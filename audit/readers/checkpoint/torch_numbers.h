// The plain numbers that a trainer saved beside its tensors: steps, rates, counters, scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"

namespace plumbline::audit {

struct NamedNumber {
  std::string name;  // "optimizer.param_groups.0.weight_decay"
  bool whole = false;
  int64_t integer = 0;  // where it is whole (booleans are, too)
  double real = 0;

  // NaN is NaN here; 1 is 1.0.
  bool Is(const NamedNumber& other) const;
  std::string text() const;
};

inline constexpr size_t kMostNumbers = size_t{1} << 16;

// Of a file that torch.save wrote, in its order; of any other, and of one that cannot be read,
// none. Lists of parameters, lists of more than 64 items (states of random generators) and what
// comes after kMostNumbers are left out.
std::vector<NamedNumber> PlainNumbers(const InputFile& file);

}  // namespace plumbline::audit
