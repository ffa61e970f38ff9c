// Real text for the example: sections of the files in examples/text, as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

inline constexpr int kVocabulary = 256;

// One micro-batch of B windows of S bytes, each from one document: row b*S + s is byte s of window
// b. Each window is a sequence.
struct Batch {
  int rows = 0;                      // B*S
  std::vector<uint8_t> tokens;       // [rows]
  std::vector<uint8_t> targets;      // [rows] the byte that follows
  std::vector<int32_t> sequence_id;  // [rows] b
  std::vector<int32_t> position;     // [rows] s
  std::vector<int32_t> pool_id;      // [rows] tokens that compete for an expert's places: here all
};

class Text {
 public:
  // Reads the sections of at least `shortest` bytes of the files in `folder`, in a fixed order.
  // Throws std::runtime_error if there is no text.
  Text(const std::string& folder, size_t shortest);

  size_t documents() const { return documents_.size(); }
  // Returns batch number `step`, which depends only on (seed, step).
  Batch Cut(int windows, int length, uint64_t seed, int64_t step) const;

 private:
  std::vector<std::string> documents_;
};

}  // namespace moe
