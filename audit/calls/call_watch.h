// Watches the library calls of a trainer and its child processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/calls/call_progress.h"
#include "audit/calls/elf_program.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

class CallWatch {
 public:
  CallWatch() = default;
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;
  ~CallWatch();  // restores the environment, and removes the tables

  // Sets this process's environment so that the command's processes are watched. If that is not
  // possible, prints the reason and changes nothing. PLUMBLINE_INTERPOSE=0 turns it off.
  void Begin(const std::vector<std::string>& command);

  // Follows the progress of collectives, from a thread of its own, until Finish(). Called in the
  // process that waits for the trainer.
  void Follow();

  // What is known after the trainer's end.
  struct End {
    std::string folder;  // of the record
    int64_t trainer = 0;
    bool recorded = false;             // a process was watched by its hook
    std::optional<v1::Ending> ending;  // if the trainer did not end well
    bool interrupted = false;          // a signal from outside ended it
  };
  // Restores the environment, prints the counts, and writes the record of calls into end.folder.
  // Returns true if it wrote one.
  bool Finish(const End& end);

 private:
  void Restore();

  std::string folder_;  // of the tables; empty: nothing is watched
  std::string name_;    // of the program
  ElfProgram program_;
  struct Variable {
    const char* name;
    std::optional<std::string> before;
  };
  std::vector<Variable> changed_;
  std::unique_ptr<CallProgress> progress_;
  void Change(const char* name, const std::string& value);
};

}  // namespace plumbline::audit
