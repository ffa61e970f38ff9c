// The steps of a table's rows, or of JSON objects, that several ranks wrote: a column or key "rank"
// names the rank of each row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/scalars/csv_columns.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {

// Steps that restart with each epoch are continued (EpochSteps), for each rank on its own. Not
// thread-safe.
class RankedSteps {
 public:
  // Looks at the first rows: calls Offer for each number of a row, then EndRow.
  void Offer(std::string_view name, double value, std::string_view step_name);
  void EndRow();
  void Look(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
            char separator, std::string_view step_name);
  // Ends that look, and assigns the rank of the first row to the file. A number is a rank if rows
  // of other ranks have no later step, as an effective rank that is logged over steps would.
  void Decide(PointSink* sink);

  // Returns true for the name of the ranks.
  bool IsRank(std::string_view name) const { return !name_.empty() && name == name_; }
  // Returns true if several ranks were seen at first. The ranks are no series then.
  bool several() const { return several_; }
  // Sets the rank of the current row.
  void Rank(double value) { rank_ = value; }
  // Begins the points of the current row: `sink` takes them for the row's rank.
  void BeginPoints(int64_t step, PointSink* sink);
  // Returns the continued step of the row. `epoch` and `loss` are its values, or nullopt.
  int64_t Of(int64_t step, std::optional<int64_t> epoch, std::optional<double> loss) {
    return steps_[now_].Of(step, epoch, loss);
  }
  // Returns a note on how steps were counted; "" if none restarted.
  std::string Note(std::string_view step_name) const;

 private:
  std::string name_;  // of the column or key; empty if there is none
  // In the first rows.
  std::optional<double> row_step_, row_rank_;
  bool any_ = false, odd_ = false;
  double highest_step_ = 0;
  uint64_t changes_ = 0, without_rise_ = 0;

  bool several_ = false;
  std::optional<double> rank_;
  int64_t now_ = 0, newest_ = 0;  // rank of the newest row, and its step
  std::map<int64_t, EpochSteps> steps_;
};

}  // namespace plumbline::audit
