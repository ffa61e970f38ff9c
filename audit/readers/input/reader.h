// The frame every input format fits into: a reader recognises files by content and turns them into
// sources, streams of batches that the pipeline merges by step and feeds to the rule engine.
//
// One reader a file (dumps/reader.cc, run_record.cc, ...), registered in reader_list.cc. Readers
// never trust a file: every problem is recorded with its byte offset, what was expected and what
// was found, and no allocation is larger than what the file's own size backs.
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

// Something wrong with an input. An error makes the audit exit with 2; the others are reported only
// (an unfinished last record of a file that may still be written).
struct Problem {
  uint64_t offset = 0;  // byte, in the decompressed stream
  std::string text;     // "expected ..., found ..."
  bool error = true;
};

// A series of scalars that a file holds.
struct SeriesSeen {
  std::string name;
  uint64_t points = 0;
};

// A column of a table that had values in nearly every row, and then in none, while others went on.
struct EmptiedColumn {
  std::string name;
  int64_t last_step = 0;  // with a value
  uint64_t values = 0, empty_rows = 0;
};

// Whether a file has the step that the user names in --map; kNotAsked: it has none to be named, or
// the user says nothing.
enum class StepSaid { kNotAsked, kMissing, kFound };

// What became of one file: the "inputs" entry of the report.
struct InputReport {
  std::string path;
  std::string format = "unknown";
  uint64_t bytes = 0;
  uint64_t records = 0;  // rows, lines, events, spans or tensors read
  std::vector<Problem> problems;
  std::vector<SeriesSeen> series;  // of formats that hold scalars, by name
  std::vector<std::string> notes;  // how it was read, where that may not be meant; no problems
  StepSaid step_said = StepSaid::kNotAsked;
  bool named = false;  // on the command line, not found in a directory
  bool of_spool =
      false;  // an agent keeps it for a server (transport/spool.h); `format` stays "unknown"
  std::map<std::string, std::string> settings;  // of the run, by name
  std::set<std::string> runs;        // whose evidence it holds; of formats that know none, empty
  std::optional<int64_t> only_step;  // of formats of one step a file
  std::vector<EmptiedColumn> emptied;
  // Steps that fall back by a few rows and come again in order, as after a resume: from, to.
  std::set<std::pair<int64_t, int64_t>> fall_backs;
  bool steps_are_rows = false;  // the file states no step: its logged rows are counted, from 1

  // At most kMaxProblems are kept, the last of them saying that there are more.
  void Add(uint64_t offset, std::string text, bool error = true);
  // How the file was read, where a person might have meant otherwise; no problem of it. At most
  // kMaxProblems are kept, each once.
  void Note(std::string text);
  bool failed() const;  // has a problem that is an error
  // "PATH: byte N: expected ..."
  std::string Line(const Problem& problem) const;

  static constexpr size_t kMaxProblems = 20;
};

// How far a source has come. Smaller is read first, so that no rank runs ahead of the others and
// the engine's join window stays small.
struct Position {
  std::string run;
  uint32_t attempt = 0;
  int64_t step = INT64_MIN;  // all of this step and earlier ones has been given out

  friend auto operator<=>(const Position&, const Position&) = default;
};

// A stream of batches out of one or several files. Not thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  virtual Position position() const = 0;
  // Fills *batch; false at the end, and then the batch is untouched. Problems go to the files'
  // reports.
  virtual bool Next(v1::Batch* batch) = 0;
  // The engine refused the batch that Next gave last.
  virtual void Refused(const absl::Status& why) = 0;
  // Bytes read and files read to their end so far, for the progress line.
  virtual uint64_t bytes_read() const = 0;
  virtual size_t files_done() const = 0;
  // The processes this source speaks for; complete after Next has returned false.
  virtual std::vector<v1::Source> processes() const = 0;
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::string_view format() const = 0;
  // `head` is the file's first kHeadBytes, or all of it. Content decides; the name may only confirm
  // it.
  virtual bool Recognise(std::string_view path, std::string_view head) const = 0;
  // The files form one input set (the ranks of a run). Reports outlive the sources; a file that
  // cannot be read gets a problem there and no source.
  virtual std::vector<std::unique_ptr<Source>> Open(
      const std::vector<InputReport*>& files) const = 0;
  // The same for readers that have a use for what the user says.
  virtual std::vector<std::unique_ptr<Source>> OpenWith(const std::vector<InputReport*>& files,
                                                        const ReaderOptions& /*options*/) const {
    return Open(files);
  }

  // What stands beside `files`, which this reader recognised, and no reader knows by its content:
  // one that carries their name is read with them, so that what is wrong with it is told; one that
  // looks like them gets a note. Called once a file.
  enum class Beside { kStranger, kAlike, kOfThem };
  virtual Beside Judge(const std::string& /*path*/, std::string_view /*head*/,
                       const std::vector<InputReport*>& /*files*/) const {
    return Beside::kStranger;
  }

  static constexpr size_t kHeadBytes = 4096;
};

// Every format this version reads. Static storage.
const std::vector<const Reader*>& Readers();

// nullptr: not read by this version.
const Reader* FindReader(std::string_view format);

// Every format name of the contract, read by this version or not.
bool IsFormatName(std::string_view format);

// "safetensors, run-record"
std::string ReadableFormats();

}  // namespace plumbline::audit
