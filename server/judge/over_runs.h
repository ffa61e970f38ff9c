// Runs that are over: the places that their names keep, and incidents of forgotten ones.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace plumbline::server {

// Not thread-safe. Time is passed in.
class OverRuns {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Incidents of a forgotten run are kept for this long, so that receivers of alerts get a
  // notification that they are over.
  static constexpr std::chrono::seconds kAlertTime{10};

  // If runs end faster than they can be forgotten, their names keep their places until then, so a
  // sender whose runs end at once waits for the judge. Returns true if the run keeps its place.
  bool KeepPlace(const std::string& run) {
    if (many_) places_.push_back(run);
    return many_;
  }
  // Returns the runs whose places are free now.
  std::vector<std::string> SetMany(bool many) {
    many_ = many;
    return many ? std::vector<std::string>() : std::exchange(places_, {});
  }

  void Forgotten(const std::string& run, Time now) { forgotten_.emplace_back(now, run); }
  // Returns the runs whose incidents are no longer needed, each once.
  std::vector<std::string> TakeForgotten(Time now) {
    std::vector<std::string> runs;
    for (; !forgotten_.empty() && forgotten_.front().first <= now - kAlertTime;
         forgotten_.pop_front())
      runs.push_back(std::move(forgotten_.front().second));
    return runs;
  }

 private:
  bool many_ = false;
  std::vector<std::string> places_;
  std::deque<std::pair<Time, std::string>> forgotten_;
};

}  // namespace plumbline::server
