// Runs a trainer as plumb run does.
#pragma once

#include <string>
#include <vector>

namespace plumbline::audit {

// Replaces this process by the command. Returns only if that fails: prints the reason, and returns
// 127 if there is no such program, else 126, as env and nohup do.
int ExecTrainer(const std::vector<std::string>& command);

// Runs the command as a child with this process's streams, folder and process group, forwards
// signals that were sent to this process alone, then judges the record in `folder` and prints the
// findings to standard error. Returns the child's exit status. If a signal killed the child, this
// process ends by the same signal.
int RunAndJudge(const std::vector<std::string>& command, const std::string& folder);

}  // namespace plumbline::audit
