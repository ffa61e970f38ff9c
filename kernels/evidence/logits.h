// Converts the results of MeasureLogitRow, for two distributions over one vocabulary, to a message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "kernels/logits/pair.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

struct LogitOptions {
  // Rows to measure (absent: all), and their names if the input is a part of a larger tensor
  // (empty: their numbers).
  std::optional<std::span<const uint64_t>> rows;
  std::span<const uint64_t> names;
  // The number of measured rows that the message lists one by one: drawn by `key`, independent of
  // their values, so that they can be tested as a sample.
  uint32_t max_rows = 0;
  uint64_t key = 0;
  // Rows with the largest divergence, kept completely.
  uint32_t max_witnesses = 2;
  uint64_t witness_bytes = uint64_t{4} << 20;
  int threads = 1;
};

// Fills summary, rows, witnesses, and vocabulary and both dtypes of the configuration. Host
// tensors. Returns InvalidArgument with the tensor that does not fit, or a token beyond the
// vocabulary.
absl::Status FillLogits(const LogitInput& in, const LogitOptions& options, v1::Logits* out);

}  // namespace plumbline
