// Two distributions over one vocabulary as a message: what MeasureLogitRow found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "kernels/logits/pair.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

struct LogitOptions {
  // Rows to measure (absent: all), and what they are called where the input is a part of a larger
  // tensor (empty: as they are numbered).
  std::optional<std::span<const uint64_t>> rows;
  std::span<const uint64_t> names;
  // Of the rows measured, how many the message holds one by one: drawn by `key`, whatever they
  // show, so that they may be tested as a sample.
  uint32_t max_rows = 0;
  uint64_t key = 0;
  // Rows of the largest divergence kept as they are.
  uint32_t max_witnesses = 2;
  uint64_t witness_bytes = uint64_t{4} << 20;
  int threads = 1;
};

// Summary, rows, witnesses, and of the configuration the vocabulary and both dtypes. Host tensors.
// InvalidArgument names the tensor that does not fit, or a token beyond the vocabulary.
absl::Status FillLogits(const LogitInput& in, const LogitOptions& options, v1::Logits* out);

}  // namespace plumbline
