// Finds sentences of loss scalers in a log, outside its rows: "OVERFLOW! ... Attempted loss scale:
// 65536, reducing to 32768", "Gradient overflow. Skipping step, loss scaler 0 reducing loss scale
// to 1024.0", "gradient overflow detected, ..., setting loss scale to: 64.0". Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace plumbline::audit {

class ScalerSentences {
 public:
  // Takes the next line of a log and its offset in the file. Ignores other lines.
  void Take(std::string_view line, uint64_t at);

  uint64_t events() const { return events_; }
  double first() const { return first_; }  // scale at the first event, before or after it
  double last() const { return last_; }    // scale of the newest event
  double lowest() const { return lowest_; }
  // Number of consecutive falls, up to the newest event.
  uint64_t falls() const { return falls_; }
  uint64_t last_at() const { return last_at_; }  // offset of the newest event
  // True if the scale falls many times in a row, until the end of a log of `bytes` bytes, or until
  // it is 1.
  bool storm(uint64_t bytes) const {
    const bool to_the_end = static_cast<double>(last_at_) >= 0.9 * static_cast<double>(bytes);
    return falls_ >= kStorm && (to_the_end || lowest_ <= 1);
  }

 private:
  // Number of halvings; a scaler's search for its scale has fewer.
  static constexpr uint64_t kStorm = 10;

  uint64_t events_ = 0, falls_ = 0, last_at_ = 0;
  double first_ = NAN, last_ = NAN, lowest_ = HUGE_VAL;
};

}  // namespace plumbline::audit
