#include "audit/readers/scalars/scalar_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/file_places.h"
#include "audit/readers/scalars/batches.h"
#include "audit/readers/scalars/csv_recognition.h"
#include "audit/readers/scalars/file_sink.h"
#include "audit/readers/scalars/json_recognition.h"

namespace plumbline::audit {
namespace {

struct ScalarFile {
  InputReport* report;
  FilePlace place;
  double begun;
};

double BegunOf(const PointFormat& format, const std::string& path) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (format.begun == nullptr) return kUnknown;
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return kUnknown;
  const absl::StatusOr<std::string> head = file->Head(Reader::kHeadBytes);
  return head.ok() ? format.begun(path, *head) : kUnknown;
}

// Sorts files by the time at which they began, if it is known for all files. Otherwise sorts by
// path.
std::vector<ScalarFile> InOrder(const PointFormat& format, const std::vector<InputReport*>& reports,
                                const ScalarOptions& options) {
  std::vector<std::string> paths;
  for (const InputReport* report : reports) paths.push_back(report->path);
  std::vector<FilePlace> places = PlaceFiles(paths, format.by_folder, options);
  std::vector<ScalarFile> files;
  for (size_t i = 0; i < reports.size(); ++i)
    files.push_back({reports[i], std::move(places[i]), BegunOf(format, paths[i])});
  const bool timed = std::none_of(files.begin(), files.end(),
                                  [](const ScalarFile& file) { return std::isnan(file.begun); });
  std::stable_sort(files.begin(), files.end(), [&](const ScalarFile& a, const ScalarFile& b) {
    if (timed && a.begun != b.begun) return a.begun < b.begun;
    return a.report->path < b.report->path;
  });
  return files;
}

// Removes copies of a state, and adds a note to each.
std::vector<InputReport*> WithoutCopies(const std::vector<InputReport*>& reports) {
  std::vector<StateFile> files;
  for (InputReport* report : reports) files.push_back({report, report->bytes});
  const std::map<const InputReport*, std::string> copies = CopiesAmong(files);
  std::vector<InputReport*> out;
  for (InputReport* report : reports) {
    const auto copy = copies.find(report);
    if (copy == copies.end()) {
      out.push_back(report);
    } else {
      report->Note(NoteOfCopy(copy->second));
    }
  }
  return out;
}

// Returns an id that is the same on every host for the same files.
uint64_t StreamOf(const char* format, const std::vector<ScalarFile>& files) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  mix(format);
  for (const ScalarFile& file : files) mix(file.place.run);
  return hash | 1;
}

// Reads one file after the other, then returns batches.
class ScalarSource : public Source {
 public:
  ScalarSource(const PointFormat& format, const PointLimits& limits, std::vector<ScalarFile> files,
               const ScalarOptions& options)
      : format_(format), options_(options), files_(std::move(files)) {
    runs_.limits = limits;
  }

  // The position is unknown while the files are read, because the first run is not known yet.
  Position position() const override { return batches_ ? batches_->position() : Position{}; }

  bool Next(v1::Batch* batch) override {
    if (!batches_) {
      if (ReadOn()) {
        batch->Clear();
        return true;
      }
      batches_.emplace(&runs_, StreamOf(format_.name, files_));
    }
    if (batches_->Next(batch)) {
      ReportLosses(batch);
      return true;
    }
    return false;
  }

  void Refused(const absl::Status& why) override {
    files_[0].report->Add(
        0, "expected consistent points of a run, found " + std::string(why.message()));
  }

  uint64_t bytes_read() const override {
    return bytes_before_ + (open_ == nullptr ? 0 : open_->bytes_read());
  }
  size_t files_done() const override { return file_; }
  // Returns no process: the batches contain the progress of each rank, so the engine need not wait.
  std::vector<v1::Source> processes() const override { return {}; }

 private:
  // Reads a piece of the next file. Returns false if all are read.
  bool ReadOn() {
    if (file_ == files_.size()) return false;
    // Keeps only one file open at a time. If a file cannot be opened, its report has the reason.
    ScalarFile& file = files_[file_];
    if (open_ == nullptr) {
      open_ = format_.open(file.report, options_);
      if (open_ == nullptr) {
        ++file_;
        return true;
      }
      sink_.emplace(file.place, file.begun, &runs_, file.report);
    }
    if (open_->Read(&*sink_)) return true;
    // The file is completely read. Adds the number of points that were left out, and moves to the
    // next file.
    open_->Close(&*sink_);
    sink_->Finish();
    left_out_ += sink_->left_out();
    bytes_before_ += open_->bytes_read();
    open_.reset();
    sink_.reset();
    ++file_;
    return true;
  }

  // Adds the losses to the first batch, so that no attempt lacks them.
  void ReportLosses(v1::Batch* batch) {
    if (left_out_ == 0) return;
    v1::Loss& loss = *batch->add_losses();
    loss.set_source(0);
    loss.set_cause("reader-bound");
    loss.set_count(std::exchange(left_out_, 0));
  }

  const PointFormat& format_;
  const ScalarOptions options_;
  std::vector<ScalarFile> files_;
  size_t file_ = 0;  // index of the current file
  std::unique_ptr<PointFile> open_;
  std::optional<FileSink> sink_;
  PointRuns runs_;
  std::optional<PointBatches> batches_;
  uint64_t bytes_before_ = 0;  // bytes of the files before the current one
  uint64_t left_out_ = 0;      // left-out points that were not reported yet
};

}  // namespace

std::vector<std::unique_ptr<Source>> ScalarReader::OpenWith(const std::vector<InputReport*>& files,
                                                            const ReaderOptions& options) const {
  std::vector<std::unique_ptr<Source>> sources;
  if (files.empty()) return sources;
  sources.push_back(std::make_unique<ScalarSource>(
      format_, limits_, InOrder(format_, WithoutCopies(files), options.scalars), options.scalars));
  return sources;
}

const Reader& TensorBoardReader() {
  static const ScalarReader reader(TensorBoardFormat());
  return reader;
}

const Reader& WandbReader() {
  static const ScalarReader reader(WandbFormat());
  return reader;
}

ScalarOptions NextToFormat(ScalarOptions options, std::string_view format, std::string_view first,
                           InputReport* report) {
  if (options.run.empty() || format == first) return options;
  report->Note("--run " + options.run + " is the name of the run of the " + std::string(first) +
               " other files: the series of this one are called " + options.run +
               "/ and their own name");
  options.within = true;
  return options;
}

const Reader* ReaderByStep(std::string_view path, std::string_view head, const std::string& step) {
  if (step.empty()) return nullptr;
  if (IsJsonScalars(path, head, step)) return FindReader("jsonl");
  return IsCsv(path, head, step) ? FindReader("csv") : nullptr;
}

std::vector<const Reader*> ScalarReaders() {
  static const ScalarReader json_lines(JsonLinesFormat()), csv(CsvFormat()),
      trainer_log(TrainerLogFormat()), mlflow(MlflowFormat()), database(DatabaseFormat()),
      swanlab(SwanlabFormat()), comet(CometFormat()), sacred(SacredFormat()),
      samples(SamplesFormat());
  return {&TensorBoardReader(),
          &WandbReader(),
          &swanlab,
          &comet,
          &sacred,
          &mlflow,
          &database,
          &samples,
          &json_lines,
          &csv,
          &trainer_log};
}

}  // namespace plumbline::audit
