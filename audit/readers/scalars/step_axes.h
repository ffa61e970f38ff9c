// Finds the step of a value in a file with several axes of steps: "rollout/reward" has the steps of
// "rollout/step", "train/loss" those of "train/step".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {

// Other axes than the file's own step. An axis that falls more often than this step is a batch of
// an evaluation, and one that never changes is a total: both are series. Memory is bounded. Not
// thread-safe.
class StepAxes {
 public:
  // Returns "rollout" for "rollout/step"; "" for a name that is no such axis.
  static std::string_view SubjectOf(std::string_view name);
  // Returns true if `series` belongs to the axis of `subject`: "rollout/reward", "rollout".
  static bool Holds(std::string_view subject, std::string_view series);

  // Takes a number of the first records.
  void Look(std::string_view name, double value);
  // Ends that look. `main` is the file's own step. If it has no subject, there are no other axes.
  void Begin(std::string_view main);
  bool on() const { return on_; }

  void BeginRow();
  // Takes the file's own step of the current row.
  void Main(int64_t step);
  // Takes another number of the row. Returns true if it is the step of an axis.
  bool Take(std::string_view name, double value);
  // Returns the step of a series of the current row: that of its own axis, else `main`, else that
  // of the row's first axis if the series has no other one ("perf/time" next to "rollout/step").
  // Returns nullopt if there is none. `epoch` is the value in the row.
  std::optional<int64_t> Of(std::string_view series, std::optional<int64_t> main,
                            std::optional<int64_t> epoch);
  // Returns a note that names the axes; "" if no value was found on one.
  std::string Note() const;

 private:
  struct Axis {
    std::string name, subject;
    int64_t last = -1, main_at = -1;  // newest step, and the file's own step at that time
    uint64_t seen = 0, falls = 0, moves = 0;
    bool dropped = false;           // it is a series
    std::optional<int64_t> in_row;  // its step in the current row
    EpochSteps steps;
    std::optional<int64_t> placed;  // continued step of the current row
    bool used = false;              // a value was placed on it
  };
  static constexpr size_t kMostAxes = 16, kMostHomes = 4096, kMain = kMostAxes;

  Axis* Find(std::string_view name);
  static void Count(Axis* axis, int64_t value);
  bool IsHome(std::string_view series, size_t axis);
  int64_t StepOn(Axis* axis, std::optional<int64_t> epoch);

  std::vector<Axis> axes_;
  // Series without an axis of their own -> index of the axis, or kMain. The steps of two axes in
  // one series would fall.
  std::map<std::string, size_t, std::less<>> homes_;
  std::string main_;
  bool on_ = false;
  int64_t main_last_ = -1;
  uint64_t main_falls_ = 0;
};

}  // namespace plumbline::audit
