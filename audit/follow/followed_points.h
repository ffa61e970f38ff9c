// Reads the files of one scalar format while they are being written, and keeps all their points.
// Each byte is read once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/follow/file_stamp.h"
#include "audit/readers/input/file_places.h"
#include "audit/readers/scalars/file_sink.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// Rules for changed files. Memory: 16 bytes per point, at most PointLimits, and one block per file.
// Not thread-safe.
// - If a file grew, reads what was appended.
// - If a file was replaced or truncated, it was rotated: reads the new one as the next file of its
//   run.
// - If the new file begins like the old one, or is a JSON document (which has one form at a time),
//   it was rewritten: discards its points and reads all files again.
// - Of a trainer's state and its copies, reads the longest, as an audit does. If a longer one
//   appears, reads all again.
class FollowedPoints {
 public:
  using Clock = std::chrono::steady_clock;

  FollowedPoints(const PointFormat& format, ScalarOptions options, PointLimits limits = {});

  // Adds files. The reports must outlive this object.
  void Add(const std::vector<InputReport*>& fresh);
  // Reads new content. Returns true if there was any.
  bool Poll();
  // Returns true once after points became invalid.
  bool TakeAnew() { return std::exchange(anew_, false); }

  const PointFormat& format() const { return format_; }
  PointRuns& runs() { return *runs_; }
  // Returns the newest step that is considered complete. If nothing came for a moment, this is the
  // newest step of all ranks; otherwise it is the step before the newest step of the slowest rank.
  // Does not wait for a rank that had no points for seconds.
  int64_t Through(const RunPoints& run) const;
  // Returns true if the rank is further from the newest step of its run than it ever was when one
  // of its values arrived. Ranks may differ because logs are written in blocks. If few points of
  // the rank arrived since the files are followed, the distance must exceed the number of steps
  // that it reported.
  bool FellSilent(const std::string& run, uint32_t rank) const;
  // Returns the number of points dropped because of the limits.
  uint64_t left_out() const;
  // Reports unfinished ends as problems, and lists the series in each report. The last call.
  void Close();

 private:
  struct File {
    InputReport* report = nullptr;
    FilePlace place;
    double begun = 0;
    std::string head;  // its first bytes
    std::optional<FileStamp> stamp;
    std::unique_ptr<PointFile> open;
    std::unique_ptr<FileSink> sink;
    std::vector<SeriesSeen> before;  // of the files that it replaced
    uint64_t bytes_before = 0;
    bool dormant = false;  // read to its end long after it was last written, and closed
    std::string copy_of;   // if it is a copy and not read (CopiesAmong): the path of the file that
                           // is read
  };
  struct Lane {
    uint32_t attempt = 0;
    int64_t newest = INT64_MIN;
    uint64_t points = 0;
    Clock::time_point at{};  // time of the newest points
    int64_t first = 0;       // step of the attempt
    int64_t lag = 0;         // largest number of steps between the rank and the newest step of the
                             // run, at the arrival of a point
    uint64_t arrivals = 0;   // number of arrivals
  };

  void Place();
  bool SetCopiesAside();
  void Order();
  bool Open(File* file);
  bool ReadOn(File* file);
  void Shut(File* file);
  bool Look(File* file);
  bool WrittenAnew(const File& file) const;
  void ReadAgain();
  void NoteLanes();
  int64_t NewestStep(const RunPoints& run) const;  // by lanes_

  const PointFormat& format_;
  const ScalarOptions options_;
  const PointLimits limits_;
  std::vector<std::unique_ptr<File>> files_;
  std::unique_ptr<PointRuns> runs_;
  std::map<const PointLane*, Lane> lanes_;
  uint64_t left_out_ = 0;  // of files that were closed
  bool anew_ = false;
  bool again_ = false;  // all must be read again
  Clock::time_point again_at_{};
};

}  // namespace plumbline::audit
