// Finds the files below the paths of a command line, and the reader that recognises each. Searches
// folders repeatedly.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit/follow/file_stamp.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// Not thread-safe. References to reports stay valid.
class KnownFiles {
 public:
  KnownFiles(std::vector<std::string> paths, const Reader* forced, const Reader* mapped,
             std::string step)
      : paths_(std::move(paths)), forced_(forced), mapped_(mapped), step_(std::move(step)) {}

  struct Found {
    InputReport* report;
    const Reader* reader;
  };
  // Returns files that are new, or were not recognised before. An unrecognised file is tried again
  // when it has grown, and in the last pass.
  std::vector<Found> Look(bool last);

  // Returns the reports of all files in the order of an audit. If `last`, also reports named paths
  // that do not exist.
  std::deque<InputReport> Reports(bool last) const;

 private:
  struct File {
    std::unique_ptr<InputReport> report;
    size_t argument = 0;
    uint64_t query_at = 0;  // size in bytes at which an unrecognised file is tried again
    bool known = false;     // a reader recognised it
  };

  void LookAt(const std::string& path, size_t argument, std::vector<Found>* found);
  void LookThrough(const std::string& folder, size_t argument, std::vector<Found>* found);

  const std::vector<std::string> paths_;
  const Reader* const forced_;
  const Reader* const mapped_;
  const std::string step_;             // see FindInputs
  std::map<std::string, File> files_;  // by path
  std::set<std::string> canonical_;    // canonical path of each file
};

}  // namespace plumbline::audit
