// Which files there are below the paths of a command line, and which reader recognised them;
// folders are looked through again and again.
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

// Not thread-safe. Reports stay where they are.
class KnownFiles {
 public:
  KnownFiles(std::vector<std::string> paths, const Reader* forced, const Reader* mapped,
             std::string step)
      : paths_(std::move(paths)), forced_(forced), mapped_(mapped), step_(std::move(step)) {}

  struct Found {
    InputReport* report;
    const Reader* reader;
  };
  // Those that were not there, or not recognised, before. What is recognised by nothing is asked
  // again when it has grown, and at the last look.
  std::vector<Found> Look(bool last);

  // All that came, as an audit lists them; `last`: and paths that were named and lead nowhere.
  std::deque<InputReport> Reports(bool last) const;

 private:
  struct File {
    std::unique_ptr<InputReport> report;
    size_t argument = 0;
    uint64_t ask_at = 0;  // bytes, of one that is not recognised
    bool known = false;   // recognised
  };

  void LookAt(const std::string& path, size_t argument, std::vector<Found>* found);
  void LookThrough(const std::string& folder, size_t argument, std::vector<Found>* found);

  const std::vector<std::string> paths_;
  const Reader* const forced_;
  const Reader* const mapped_;
  const std::string step_;             // FindInputs
  std::map<std::string, File> files_;  // by path
  std::set<std::string> canonical_;    // of each file, what it really is
};

}  // namespace plumbline::audit
