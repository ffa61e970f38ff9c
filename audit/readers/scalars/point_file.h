// The frame of all formats that hold scalars (TensorBoard, W&B, CSV, JSON lines, trainer logs): one
// file gives points in its own order; the frame (scalar_reader.h) joins the files of a run, finds
// the attempts and makes rows of them.
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

// Where points go.
class PointSink {
 public:
  virtual ~PointSink() = default;
  // The column of a series; the same name gives the same one. Names beyond a bound are counted and
  // give kNoColumn.
  virtual uint32_t Column(std::string_view name) = 0;
  // In the order of the file: a step that was seen before tells of a resume. NaN and infinities are
  // values; an absent value is no point. kNoColumn is ignored.
  virtual void Add(int64_t step, uint32_t column, double value) = 0;
  // The same of a row's points, one after the other.
  virtual void AddRow(int64_t step, std::span<const std::pair<uint32_t, double>> points) {
    for (const auto& [column, value] : points) Add(step, column, value);
  }
  // The file says so itself: a new process writes from here on (a W&B run that was resumed).
  virtual void Resumed() = 0;
  // Values whose step could not be told, or that are no numbers though they should be.
  virtual void Unplaced(uint64_t values) = 0;
  // What the file says of its run and rank; empty and negative: nothing. Flags of the user win.
  virtual void Belongs(std::string_view run, int64_t rank) = 0;
  // How the process ended, where the file says it: its exit status.
  virtual void Ended(int32_t /*status*/) {}
  // A setting of the run that the file states.
  virtual void Setting(std::string_view /*name*/, std::string_view /*value*/) {}

  static constexpr uint32_t kNoColumn = UINT32_MAX;
};

// One open file. Not thread-safe.
class PointFile {
 public:
  virtual ~PointFile() = default;
  // Reads on, about a megabyte at most. False: nothing more is there now; of a file that grows Read
  // may be called again and goes on where it stopped. Problems and records go to the file's
  // InputReport.
  virtual bool Read(PointSink* sink) = 0;
  virtual uint64_t bytes_read() const = 0;
  // The file is at its end for good: an unfinished last record is a problem now (no error,
  // CONTRACT.md).
  virtual void Close(PointSink* sink) = 0;
};

// One format. Static storage.
struct PointFormat {
  const char* name;  // as in CONTRACT.md: "tensorboard"
  bool (*recognise)(std::string_view path, std::string_view head);
  // nullptr: the file could not be opened; its report has the problem.
  std::unique_ptr<PointFile> (*open)(InputReport* report, const ScalarOptions& options);
  // The files of one folder are one run, as TensorBoard has it; false: each file is one, ranks and
  // splits apart.
  bool by_folder = false;
  // When the process began the file, in seconds of Unix time; NaN: it does not say. nullptr: files
  // of this format never do.
  double (*begun)(std::string_view path, std::string_view head) = nullptr;
};

const PointFormat& TensorBoardFormat();
const PointFormat& WandbFormat();
const PointFormat& CsvFormat();
const PointFormat& JsonLinesFormat();  // also one JSON document: trainer_state.json
const PointFormat& TrainerLogFormat();
const PointFormat& MlflowFormat();
const PointFormat& DatabaseFormat();  // of MLflow or trackio, in SQLite
const PointFormat& SwanlabFormat();
const PointFormat& CometFormat();    // offline experiments
const PointFormat& SamplesFormat();  // texts with scores, of verl's rollout_data_dir
const PointFormat& SacredFormat();   // a FileStorageObserver's metrics.json

}  // namespace plumbline::audit
