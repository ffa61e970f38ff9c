// Reads one rollout file as a stream of checked records: lines of JSON, or one JSON array of
// records. Refused lines go to its report.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "audit/readers/input/line_reader.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/array_lines.h"
#include "audit/readers/rollout/batch_rows.h"
#include "audit/readers/rollout/columns.h"
#include "audit/readers/rollout/parser.h"
#include "audit/readers/rollout/sequence.h"

namespace plumbline::audit {

// Not thread-safe. The map and the report must outlive it.
class RolloutFile {
 public:
  RolloutFile(const ColumnMap& map, InputReport* report);

  // Reads the file's first whole record for its run and step, and closes the file again, because
  // thousands of files may be waiting. If the file cannot be opened, adds the reason to the report
  // and returns false. If there is no such record, the run is "" and the step has the smallest
  // value.
  bool Peek();

  // Reads the next record into columns() and shape(). Returns false at the end of the file, which
  // is then closed.
  bool Next();

  const std::string& run() const { return run_; }
  int64_t step() const {
    return step_;
  }  // of the current record; before the first Next, of the
     // first record
  // Offset of the last line that was read.
  uint64_t line_offset() const { return line_offset_; }
  uint64_t line_number() const { return line_number_; }

  const RolloutColumns& columns() const {
    return map_.token_records ? work_->sequence : work_->record;
  }
  const SequenceShape& shape() const { return shape_; }
  // Returns the id to use for a record without one: "runs/exp1/rollouts.jsonl:17", or with the row
  // of a batch, "runs/exp1/rollouts.jsonl:17:3".
  std::string DefaultId() const;
  // Refuses the current record.
  void Refuse(const std::string& expected, const std::string& found);

  InputReport& report() { return *report_; }
  uint64_t bytes_read() const;
  bool ended() const { return ended_; }

 private:
  // State that is needed only while the file is open.
  struct Work {
    Work(const ColumnMap& map, std::unique_ptr<ByteStream> stream)
        : parser(map),
          lines(std::move(stream), LineReader::kMaxLine,
                [this](char* data, size_t size) { array.Rewrite(data, size); }) {}
    RolloutParser parser;
    ArrayLines array;
    LineReader lines;
    RolloutColumns record, sequence, waiting;
    Line line;        // the last line that was read
    BatchRows batch;  // the rows of this line, if it is a batch
    std::string row;  // the text of the last row
  };

  bool Open();
  bool NextRecord();
  bool NextSequence();
  bool NextRow(bool* usable, LineProblem* problem);
  bool Usable(const Line& line, LineProblem* problem);
  bool UsableText(std::string_view text, LineProblem* problem);
  std::string Place(const Line& line) const;
  void Report(const Line& line, const LineProblem& problem);
  void Close();

  const ColumnMap& map_;
  InputReport* report_;
  std::unique_ptr<Work> work_;  // set while the file is open
  std::optional<int64_t> named_step_;
  std::string run_;
  bool run_known_ = false;
  int64_t step_ = INT64_MIN;
  bool has_waiting_ = false;     // waiting_ holds a token of the next sequence
  bool drained_ = false;         // there are no more lines
  uint64_t without_values_ = 0;  // number of records whose log-probabilities are null
  SequenceShape shape_;
  uint64_t line_offset_ = 0, line_number_ = 0;
  uint64_t bytes_read_ = 0;
  bool ended_ = false;
};

}  // namespace plumbline::audit
