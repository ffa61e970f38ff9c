// The interface of every input format. A reader recognises files by content and turns them into
// sources: streams of batches that the pipeline merges by step and feeds to the rule engine.
//
// Each reader has one file (dumps/reader.cc, run_record.cc, ...) and is registered in
// reader_list.cc. Readers never trust a file. They record every problem with its byte offset, the
// expected and the found content. No allocation is larger than the file's size justifies.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/input/reader_options.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// A problem of an input. If it is an error, the audit exits with 2. Other problems are only
// reported (an unfinished last record of a file that may still be written).
struct Problem {
  uint64_t offset = 0;  // offset in bytes of the decompressed stream
  std::string text;     // "expected ..., found ..."
  bool error = true;
};

// A series of scalars in a file.
struct SeriesSeen {
  std::string name;
  uint64_t points = 0;
};

// A column of a table that had values in nearly every row, and then in no row, while other columns
// continued.
struct EmptiedColumn {
  std::string name;
  int64_t last_step = 0;  // last step with a value
  uint64_t values = 0, empty_rows = 0;
};

// Whether a file has the step column that the user names in --map. kNotRequested: the format has no
// such column, or the user gave none.
enum class StepStated { kNotRequested, kMissing, kFound };

// The result of reading one file: the "inputs" entry of the report.
struct InputReport {
  std::string path;
  std::string format = "unknown";
  uint64_t bytes = 0;
  uint64_t records = 0;  // rows, lines, events, spans or tensors read
  std::vector<Problem> problems;
  std::vector<SeriesSeen> series;  // sorted by name; only for formats that hold scalars
  // How the file was read, if the user may have meant something else; not problems.
  std::vector<std::string> notes;
  StepStated step_stated = StepStated::kNotRequested;
  // True if the command line names the file; false if it was found in a directory.
  bool named = false;
  bool of_spool =
      // True if an agent keeps the file for a server (transport/spool.h); `format` is then
      // "unknown".
      false;
  std::map<std::string, std::string> settings;  // name -> value of the run's settings
  // Runs whose evidence the file holds; empty for formats without runs.
  std::set<std::string> runs;
  std::optional<int64_t> only_step;  // the step of the file, for formats with one step per file
  std::vector<EmptiedColumn> emptied;
  // (from, to) of each place where steps fall back by a few rows and then continue in order, as
  // after a resume.
  std::set<std::pair<int64_t, int64_t>> fall_backs;
  bool steps_are_rows = false;  // the file has no steps, so its logged rows are numbered from 1

  // Adds a problem. Keeps at most kMaxProblems; the last one then states that there are more.
  void Add(uint64_t offset, std::string text, bool error = true);
  // Adds a note on how the file was read, if the user may have meant something else. Keeps at most
  // kMaxProblems notes, each once.
  void Note(std::string text);
  bool failed() const;  // true if a problem is an error
  // Returns "PATH: byte N: expected ...".
  std::string Line(const Problem& problem) const;

  static constexpr size_t kMaxProblems = 20;
};

// The progress of a source. The source with the smallest position is read next, so that no rank
// runs ahead of the others and the engine's join window stays small.
struct Position {
  std::string run;
  uint32_t attempt = 0;
  int64_t step = INT64_MIN;  // all evidence up to this step has been returned

  friend auto operator<=>(const Position&, const Position&) = default;
};

// A stream of batches from one or several files. Not thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  virtual Position position() const = 0;
  // Fills *batch. Returns false at the end, and leaves the batch unchanged. Problems go to the
  // files' reports.
  virtual bool Next(v1::Batch* batch) = 0;
  // Reports that the engine refused the batch of the last Next.
  virtual void Refused(const absl::Status& why) = 0;
  // Returns the bytes read so far, for the progress line. The next function returns the number of
  // files that were read to their end.
  virtual uint64_t bytes_read() const = 0;
  virtual size_t files_done() const = 0;
  // Returns the processes of this source. Complete after Next has returned false.
  virtual std::vector<v1::Source> processes() const = 0;
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::string_view format() const = 0;
  // Returns true if the file has this format. `head` is the file's first kHeadBytes, or all of it.
  // The content decides; the name may only confirm it.
  virtual bool Recognise(std::string_view path, std::string_view head) const = 0;
  // Opens the files of one input set (the ranks of a run). Reports must outlive the sources. A file
  // that cannot be read gets a problem in its report and has no source.
  virtual std::vector<std::unique_ptr<Source>> Open(
      const std::vector<InputReport*>& files) const = 0;
  // Like Open, with options of the user. Override in readers that use options.
  virtual std::vector<std::unique_ptr<Source>> OpenWith(const std::vector<InputReport*>& files,
                                                        const ReaderOptions& /*options*/) const {
    return Open(files);
  }

  // Judges a file next to `files`, which this reader recognised. No reader recognises the file by
  // its content. kOfThem: its name belongs to `files`, so it is read with them and its problems are
  // reported. kAlike: it looks like them and gets a note. Called once per file.
  enum class Adjacent { kStranger, kAlike, kOfThem };
  virtual Adjacent Judge(const std::string& /*path*/, std::string_view /*head*/,
                         const std::vector<InputReport*>& /*files*/) const {
    return Adjacent::kStranger;
  }

  static constexpr size_t kHeadBytes = 4096;
};

// Returns all readers of this version. Static storage.
const std::vector<const Reader*>& Readers();

// Returns the reader of a format. If this version has none, returns nullptr.
const Reader* FindReader(std::string_view format);

// Returns a text such as "safetensors, run-record".
std::string ReadableFormats();

}  // namespace plumbline::audit
