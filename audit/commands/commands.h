// The subcommands of plumb, one file each. A Register function declares the command's options. The
// command runs when the line is parsed, and stores its exit status in *status.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace plumbline::audit {

struct AuditOptions;

inline constexpr int kExitClean = 0;
inline constexpr int kExitFindings = 1;
inline constexpr int kExitError = 2;  // bad usage, or an input that could not be read whole

void RegisterAudit(CLI::App& app, int* status);
void RegisterRules(CLI::App& app, int* status);
void RegisterExplain(CLI::App& app, int* status);
void RegisterFingerprint(CLI::App& app, int* status);
void RegisterLedger(CLI::App& app, int* status);
void RegisterLearn(CLI::App& app, int* status);
void RegisterDiff(CLI::App& app, int* status);
void RegisterCertify(CLI::App& app, int* status);
void RegisterPlan(CLI::App& app, int* status);
void RegisterMcp(CLI::App& app, int* status);
void RegisterCompletion(CLI::App& app, int* status);

// Removes "--" and the words after it from a command line of plumb run, and returns these words:
// the trainer's command. For other commands returns nothing.
std::vector<std::string> TakeTrainer(int* argc, char** argv);
void RegisterRun(CLI::App& app, const std::vector<std::string>& trainer, int* status);

// Adds exit statuses and examples to the help of all commands. Call it last.
void AddHelpEnds(CLI::App& app);

// Adds --format (one of `formats`) and --output to a command that prints a report.
void AddReportOptions(CLI::App* command, const std::vector<std::string>& formats,
                      std::string* format, std::string* output);

// If `file` is a map of series, adds it to the options and sets `taken`. Returns an error message
// or "".
std::string TakeScalarMap(const std::string& file, AuditOptions* options, bool* taken);

// Prints "plumb: MESSAGE" to standard error. Returns kExitError.
int Fail(const std::string& message);

// Returns true if standard output and standard error are the same terminal, pipe or file.
bool OutputsAreOne();

// Writes to standard output. If `path` is not empty, writes that file instead: to a temporary file
// in the same folder, then renames it, so that the file is whole or absent. On failure, prints the
// error and returns false.
bool WriteOutput(const std::string& path, const std::string& text);

}  // namespace plumbline::audit
