// Adds one file's points to the run of the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "audit/readers/input/file_places.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// Not thread-safe. `runs` and `report` must outlive the object. Finish reports the points that were
// left out, and adds the file's series to the report.
class FileSink final : public PointSink {
 public:
  // `begun` is the Unix time in seconds at which the file began; NaN if unknown.
  FileSink(FilePlace place, double begun, PointRuns* runs, InputReport* report)
      : place_(std::move(place)), begun_(begun), runs_(runs), report_(report) {}

  uint32_t Column(std::string_view name) override {
    // Series usually repeat in the same order.
    if (last_ < slots_.size()) {
      const uint32_t next = slots_[last_].next;
      if (next < slots_.size() && slots_[next].name == name) return last_ = next;
    }
    return FindColumn(name);
  }
  void Add(int64_t step, uint32_t column, double value) override { Take(step, column, value); }
  void AddRow(int64_t step, std::span<const std::pair<uint32_t, double>> points) override {
    for (const auto& [column, value] : points) Take(step, column, value);
  }
  void Resumed() override;
  void Unplaced(uint64_t values) override { unplaced_ += values; }
  void Belongs(std::string_view run, int64_t rank) override;
  void ForRank(uint32_t rank) override;
  void Ended(int32_t status) override;
  void Setting(std::string_view name, std::string_view value) override;

  void Finish();
  // Returns the number of points that were left out. No other data is kept about them.
  uint64_t left_out() const { return left_out_; }

 private:
  // The points of one rank. A file usually has only one rank; a log of several ranks has names such
  // as "rank3/loss".
  struct OfRank {
    PointLane* lane = nullptr;
    PointPart* part = nullptr;      // part of the lane
    bool later_file = false;        // the file is not the first one of its part
    bool began_an_attempt = false;  // this file has begun an attempt
  };
  struct Slot {
    std::string name;  // name in the file
    PointSeries* series;
    OfRank* of;
    uint32_t next = UINT32_MAX;  // the series that followed this one last time
    uint64_t points = 0;
  };
  void Take(int64_t step, uint32_t column, double value);
  uint32_t ColumnOfRank(uint32_t column);
  uint32_t FindColumn(std::string_view name);
  static int64_t TakeRank(std::string_view* name);
  OfRank* Rank(uint32_t rank);  // nullptr if there are too many ranks
  void BeginAttempt(OfRank* of);
  static constexpr size_t kCutMark = 16;  // bytes of the mark at the end of a truncated name
  std::string CutName(const std::string& name);

  FilePlace place_;
  const double begun_;

  PointRuns* runs_;
  InputReport* report_;
  RunPoints* run_ = nullptr;
  std::map<uint32_t, OfRank> ranks_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<std::string, uint32_t> columns_;
  uint32_t last_ = UINT32_MAX;
  // Rank of the points that follow, if it is not the file's; and columns of such ranks.
  std::optional<uint32_t> rank_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> columns_of_ranks_;
  uint64_t unplaced_ = 0;
  uint64_t left_out_ = 0;      // number of points left out in total
  uint64_t beyond_names_ = 0;  // number of points left out because of the limit of names
  uint64_t merged_attempts_ = 0;
  uint64_t cut_names_ = 0;
  uint64_t repeated_ = 0;  // number of values for steps that already had one
};

}  // namespace plumbline::audit
