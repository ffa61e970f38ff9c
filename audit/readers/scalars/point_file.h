// The interface of all formats that hold scalars (TensorBoard, W&B, CSV, JSON lines, trainer logs).
// A format returns the points of one file in the order of the file. The reader (scalar_reader.h)
// joins the files of a run, finds the attempts and makes rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "audit/readers/input/reader.h"
#include "audit/readers/input/reader_options.h"

namespace plumbline::audit {

// Receives points.
class PointSink {
 public:
  virtual ~PointSink() = default;
  // Returns the column of a series; equal names give equal columns. Counts names beyond a limit and
  // returns kNoColumn for them.
  virtual uint32_t Column(std::string_view name) = 0;
  // Adds a value. Call in the order of the file, because a step that was seen before indicates a
  // resume. NaN and infinities are values; do not add an absent value. Ignores kNoColumn.
  virtual void Add(int64_t step, uint32_t column, double value) = 0;
  // The same for the points of a row, one after the other.
  virtual void AddRow(int64_t step, std::span<const std::pair<uint32_t, double>> points) {
    for (const auto& [column, value] : points) Add(step, column, value);
  }
  // Call if the file states that a new process writes from here on (a W&B run that was resumed).
  virtual void Resumed() = 0;
  // Counts values whose step is unknown, or that are not numeric although they must be.
  virtual void Unplaced(uint64_t values) = 0;
  // Sets the run and rank that the file states; empty and negative if it states none. Flags of the
  // user take precedence.
  virtual void Belongs(std::string_view run, int64_t rank) = 0;
  // Takes the points that follow for this rank, up to the next call (a file in which several ranks
  // write). A rank that the file's path states takes precedence.
  virtual void ForRank(uint32_t /*rank*/) {}
  // Sets the exit status, if the file states how the process ended.
  virtual void Ended(int32_t /*status*/) {}
  // Sets a setting of the run that the file states.
  virtual void Setting(std::string_view /*name*/, std::string_view /*value*/) {}

  static constexpr uint32_t kNoColumn = UINT32_MAX;
};

// One open file. Not thread-safe.
class PointFile {
 public:
  virtual ~PointFile() = default;
  // Reads at most about a megabyte. Returns false if there is nothing more now. If the file grows,
  // a later call continues at this place. Adds problems and records to the file's InputReport.
  virtual bool Read(PointSink* sink) = 0;
  virtual uint64_t bytes_read() const = 0;
  // Ends the file: an unfinished last record is now a problem (not an error, CONTRACT.md).
  virtual void Close(PointSink* sink) = 0;
};

// One format. Static storage.
struct PointFormat {
  const char* name;  // name as in CONTRACT.md: "tensorboard"
  bool (*recognise)(std::string_view path, std::string_view head);
  // If the file cannot be opened, adds a problem to its report and returns nullptr.
  std::unique_ptr<PointFile> (*open)(InputReport* report, const ScalarOptions& options);
  // True if the files of one folder are one run, as in TensorBoard. False if each file is a run,
  // except for files of ranks and splits.
  bool by_folder = false;
  // Returns the Unix time in seconds at which the process began the file; NaN if the file does not
  // state it. nullptr if files of this format never state it.
  double (*begun)(std::string_view path, std::string_view head) = nullptr;
};

const PointFormat& TensorBoardFormat();
const PointFormat& WandbFormat();
const PointFormat& CsvFormat();
const PointFormat& JsonLinesFormat();  // JSON lines, and one JSON document: trainer_state.json
const PointFormat& TrainerLogFormat();
const PointFormat& MlflowFormat();
const PointFormat& DatabaseFormat();  // databases of MLflow or trackio, in SQLite
const PointFormat& SwanlabFormat();
const PointFormat& CometFormat();    // offline experiments of Comet
const PointFormat& SamplesFormat();  // texts with scores, from verl's rollout_data_dir
const PointFormat& SacredFormat();   // metrics.json of a FileStorageObserver

}  // namespace plumbline::audit
