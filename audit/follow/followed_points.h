// The files of one format of scalars that are being written: all their points so far, of which each
// byte was read once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/follow/file_stamp.h"
#include "audit/readers/scalars/file_places.h"
#include "audit/readers/scalars/file_sink.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/run_points.h"

namespace plumbline::audit {

// A file that is appended to is read on. One that was replaced by another file, or cut short, was
// rotated: the new one is read as the next file of its run. One that begins as it began before was
// written anew, and so is a JSON document, which has one form at a time: what was read of it is
// void, and all is read again. Of a trainer's state and its copies the longest is read, as an audit
// does; a longer one takes its place, and all is read again. Memory: 16 bytes a point, at most
// PointLimits, and a block a file. Not thread-safe.
class FollowedPoints {
 public:
  using Clock = std::chrono::steady_clock;

  FollowedPoints(const PointFormat& format, ScalarOptions options, PointLimits limits = {});

  // More files. Reports outlive this.
  void Add(const std::vector<InputReport*>& fresh);
  // Reads what is new. True: something is.
  bool Poll();
  // Since it was asked last, what was given before became void.
  bool TakeAnew() { return std::exchange(anew_, false); }

  const PointFormat& format() const { return format_; }
  PointRuns& runs() { return *runs_; }
  // The newest step of the run that is taken for whole: all of them when nothing came for a moment;
  // else those before the step that its slowest rank is in. A rank of which nothing came for
  // seconds is not waited for.
  int64_t Through(const RunPoints& run) const;
  // Is the rank further away from the newest step of its run than it ever was when something came
  // of it? Logs are written in blocks, so that ranks may be apart. Of a rank of which little came
  // since the files are followed: by more than all that it reported.
  bool FellSilent(const std::string& run, uint32_t rank) const;
  // Points that were left out for want of room, in all.
  uint64_t left_out() const;
  // An unfinished end is a problem from now on, and each report lists its series. The last call.
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
    bool dormant = false;  // read to its end long after it was written, and closed
    std::string copy_of;   // not read (CopiesAmong): the path of the one that is
  };
  struct Lane {
    uint32_t attempt = 0;
    int64_t newest = INT64_MIN;
    uint64_t points = 0;
    Clock::time_point at{};  // something came
    int64_t first = 0;       // step of the attempt
    int64_t lag = 0;         // the most steps that it was after the others when something came
    uint64_t arrivals = 0;   // how often something came
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
  uint64_t left_out_ = 0;  // of files that were shut
  bool anew_ = false;
  bool again_ = false;  // all is to be read again
  Clock::time_point again_at_{};
};

}  // namespace plumbline::audit
