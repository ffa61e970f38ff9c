// What loss scalers say in a log in sentences, apart from its rows: "OVERFLOW! ... Attempted loss
// scale: 65536, reducing to 32768", "Gradient overflow. Skipping step, loss scaler 0 reducing loss
// scale to 1024.0", "gradient overflow detected, ..., setting loss scale to: 64.0". Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace plumbline::audit {

class ScalerSentences {
 public:
  // A line of a log, in order; `at`: its offset in the file. Others say nothing.
  void Take(std::string_view line, uint64_t at);

  uint64_t events() const { return events_; }
  double first() const { return first_; }  // the scale of the first event, before or after it
  double last() const { return last_; }    // of the newest
  double lowest() const { return lowest_; }
  uint64_t falls() const { return falls_; }      // in a row, to the newest
  uint64_t last_at() const { return last_at_; }  // offset of the newest
  // The scale falls on and on, to the end of a log of so many bytes, or to 1.
  bool storm(uint64_t bytes) const {
    const bool to_the_end = static_cast<double>(last_at_) >= 0.9 * static_cast<double>(bytes);
    return falls_ >= kStorm && (to_the_end || lowest_ <= 1);
  }

 private:
  static constexpr uint64_t kStorm = 10;  // halvings: a scaler that looks for its scale has fewer

  uint64_t events_ = 0, falls_ = 0, last_at_ = 0;
  double first_ = NAN, last_ = NAN, lowest_ = HUGE_VAL;
};

}  // namespace plumbline::audit
