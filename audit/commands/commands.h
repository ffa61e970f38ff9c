// The subcommands of plumb, one file each. A Register function declares the command's options; the
// command runs when the line is parsed and leaves its exit status in *status.
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
void RegisterDiff(CLI::App& app, int* status);
void RegisterPlan(CLI::App& app, int* status);
void RegisterMcp(CLI::App& app, int* status);
void RegisterCompletion(CLI::App& app, int* status);

// Behind all others: what help says of exit statuses, and its examples.
void AddHelpEnds(CLI::App& app);

// --format, one of `formats`, and --output, of a command that prints a report.
void AddReportOptions(CLI::App* command, const std::vector<std::string>& formats,
                      std::string* format, std::string* output);

// A map of series goes into the options; empty, or what is wrong. `taken`: it was one.
std::string TakeScalarMap(const std::string& file, AuditOptions* options, bool* taken);

// "plumb: MESSAGE" on standard error; returns kExitError.
int Fail(const std::string& message);

// Writes to standard output, or to `path` unless it is empty (whole or not at all: the file is
// written beside its place and renamed). False when that failed, and then says so.
bool WriteOutput(const std::string& path, const std::string& text);

}  // namespace plumbline::audit
