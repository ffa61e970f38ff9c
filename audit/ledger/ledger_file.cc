#include "audit/ledger/ledger_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/ledger/toml_fields.h"
#include "audit/ledger/whole_file.h"
#include "base/near_word.h"

namespace plumbline::audit {
namespace {

using ledger::Arms;
using ledger::Run;
using Need = TomlFields::Need;

constexpr uint64_t kMostBytes = 16u << 20;
constexpr size_t kMostRuns = 10000, kMostMultipliers = 500;

class LedgerReader {
 public:
  explicit LedgerReader(const std::string& path) : mistake_(path) { file_.path = path; }

  absl::StatusOr<LedgerFile> Read(const std::string& text) {
    toml::table root;
    try {
      root = toml::parse(text, file_.path);
    } catch (const toml::parse_error& error) {
      mistake_.AtLine(static_cast<int>(error.source().begin.line),
                      absl::StrCat("TOML, found: ", std::string(error.description())));
      return mistake_.status();
    }
    TomlFields fields(root, "a ledger", &mistake_);
    Head(fields.Table("ledger", Need::kRequired));
    Runs(fields);
    Baseline(fields.Table("baseline", Need::kRequired));
    Multipliers(root, fields);
    StackOf(fields.Table("stack", Need::kOptional));
    fields.NoOthers();
    if (mistake_.ok()) Tried(*root.get("ledger")->as_table());
    if (!mistake_.ok()) return mistake_.status();
    return std::move(file_);
  }

 private:
  void Head(const toml::table* table) {
    if (table == nullptr) return;
    TomlFields fields(*table, "[ledger]", &mistake_);
    file_.ledger.target = fields.Positive("target", Need::kRequired).value_or(0);
    file_.ledger.tried = fields.Integer("tried", Need::kOptional);
    fields.NoOthers();
  }

  void Tried(const toml::table& table) {
    const auto listed = static_cast<int64_t>(file_.ledger.multipliers.size());
    if (file_.ledger.tried.value_or(listed) >= listed) return;
    mistake_.At(*table.get("tried"),
                absl::StrCat("tried to be at least the ", listed,
                             " multipliers that are listed, found ", *file_.ledger.tried));
  }

  void Runs(TomlFields& root) {
    const std::vector<const toml::table*> tables = root.Tables("run");
    if (mistake_.ok() && tables.empty()) mistake_.AtLine(1, "[[run]] tables, found none");
    if (tables.size() > kMostRuns)
      mistake_.At(*tables[kMostRuns], absl::StrCat("at most ", kMostRuns, " runs"));
    for (const toml::table* table : tables) {
      if (!mistake_.ok()) return;
      OneRun(*table);
    }
  }

  void OneRun(const toml::table& table) {
    TomlFields fields(table, "[[run]]", &mistake_);
    Run run;
    run.id = fields.Text("id", Need::kRequired).value_or("");
    run.flops = fields.Positive("flops", Need::kRequired).value_or(0);
    run.seed = fields.Integer("seed", Need::kRequired).value_or(0);
    run.loss = fields.Positive("loss", Need::kRequired).value_or(0);
    run.other = fields.Positive("other", Need::kOptional);
    const auto report = fields.Text("report", Need::kOptional);
    fields.NoOthers();
    if (!mistake_.ok()) return;
    if (!index_.emplace(run.id, file_.ledger.runs.size()).second)
      mistake_.At(*table.get("id"), absl::StrCat("ids that differ, found ", run.id, " twice"));
    file_.has_report.push_back(report.has_value());
    file_.open.emplace_back();
    if (report) Report(*table.get("report"), *report);
    file_.ledger.runs.push_back(std::move(run));
  }

  // Reads a report. The report's path is relative to the ledger's folder.
  void Report(const toml::node& node, const std::string& named) {
    const std::string path = (std::filesystem::path(file_.path).parent_path() / named).string();
    auto read = reports_.find(path);
    if (read == reports_.end()) {
      absl::StatusOr<std::vector<OpenFinding>> findings = ReadOpenFindings(path);
      if (!findings.ok()) {
        mistake_.At(node, absl::StrCat("report to be a JSON report of plumb audit, found ", path,
                                       ": ", findings.status().message()));
        return;
      }
      read = reports_.emplace(path, *std::move(findings)).first;
    }
    file_.open.back() = read->second;
  }

  // Returns the runs with the ids of a field.
  std::vector<size_t> RunsOf(TomlFields& fields, const char* key) {
    const toml::node* node = nullptr;
    std::vector<size_t> runs;
    std::set<size_t> seen;
    for (const std::string& id : fields.Texts(key, Need::kRequired, &node)) {
      const auto run = index_.find(id);
      if (run == index_.end()) {
        std::vector<std::string> ids;
        for (const auto& [known, at] : index_) ids.push_back(known);
        mistake_.At(*node, absl::StrCat("ids of runs in ", key, ", found ", id,
                                        ", which no [[run]] has", DidYouMean(id, ids)));
      } else if (!seen.insert(run->second).second) {
        mistake_.At(*node, absl::StrCat("each run once in ", key, ", found ", id, " twice"));
      } else {
        runs.push_back(run->second);
      }
    }
    return mistake_.ok() ? runs : std::vector<size_t>();
  }

  // Rejects two runs of one scale and seed: each of them would be paired with the same run of the
  // other arm.
  void OneOfASeed(const toml::table& table, const char* key, const std::vector<size_t>& arm) {
    std::map<std::pair<double, int64_t>, size_t> seen;
    for (const size_t r : arm) {
      const Run& run = file_.ledger.runs[r];
      const auto [first, fresh] = seen.emplace(std::pair(run.flops, run.seed), r);
      if (fresh) continue;
      mistake_.At(*table.get(key),
                  absl::StrCat("one run of each scale and seed in ", key, ", found ",
                               file_.ledger.runs[first->second].id, " and ", run.id));
    }
  }

  Arms ArmsOf(TomlFields& fields, const std::string& what) {
    Arms arms;
    arms.with = RunsOf(fields, "with");
    arms.without = RunsOf(fields, "without");
    if (!mistake_.ok()) return arms;
    const toml::table& table = fields.table();
    OneOfASeed(table, "with", arms.with);
    OneOfASeed(table, "without", arms.without);
    const std::set<size_t> with(arms.with.begin(), arms.with.end());
    for (const size_t r : arms.without) {
      if (with.contains(r))
        mistake_.At(*table.get("without"), absl::StrCat("other runs than in with, found ",
                                                        file_.ledger.runs[r].id, " in both"));
    }
    InCommon(table, arms, what);
    return arms;
  }

  void InCommon(const toml::table& table, const Arms& arms, const std::string& what) {
    if (mistake_.ok() && ledger::CellsOf(file_.ledger.runs, arms).empty())
      mistake_.At(table, absl::StrCat("runs with and without ", what,
                                      " of the same FLOPs, found no scale in common"));
  }

  void Baseline(const toml::table* table) {
    if (table == nullptr) return;
    TomlFields fields(*table, "[baseline]", &mistake_);
    file_.ledger.baseline = RunsOf(fields, "runs");
    fields.NoOthers();
    file_.baseline_line = static_cast<int>(table->source().begin.line);
    if (!mistake_.ok()) return;
    const size_t scales = ledger::ScalesOf(file_.ledger.runs, file_.ledger.baseline);
    if (scales < 2)
      mistake_.At(*table->get("runs"),
                  absl::StrCat("runs of at least 2 scales (flops), found ", scales));
  }

  void Multipliers(const toml::table& root, TomlFields& fields) {
    const std::vector<const toml::table*> tables = fields.Tables("multiplier");
    if (mistake_.ok() && tables.empty()) mistake_.At(root, "[[multiplier]] tables, found none");
    if (tables.size() > kMostMultipliers)
      mistake_.At(*tables[kMostMultipliers], absl::StrCat("at most ", kMostMultipliers));
    for (const toml::table* table : tables) {
      if (!mistake_.ok()) return;
      OneMultiplier(*table);
    }
  }

  void OneMultiplier(const toml::table& table) {
    TomlFields fields(table, "[[multiplier]]", &mistake_);
    ledger::Multiplier m;
    m.name = fields.Text("name", Need::kRequired).value_or("");
    m.claimed = fields.Positive("claimed", Need::kRequired).value_or(1);
    m.kept = fields.Flag("kept").value_or(true);
    file_.on.push_back(On(table, fields));
    m.arms = ArmsOf(fields, m.name);
    fields.NoOthers();
    if (!mistake_.ok()) return;
    if (!names_.insert(m.name).second)
      mistake_.At(*table.get("name"), absl::StrCat("names that differ, found ", m.name, " twice"));
    file_.ledger.multipliers.push_back(std::move(m));
  }

  // Returns a text, or the texts of a list.
  static std::string On(const toml::table& table, TomlFields& fields) {
    const toml::node* node = table.get("on");
    if (node == nullptr || !node->is_array())
      return fields.Text("on", Need::kOptional).value_or("");
    if (node->as_array()->empty()) fields.Ignore("on");
    std::string joined;
    if (node->as_array()->empty()) return joined;
    for (const std::string& text : fields.Texts("on", Need::kOptional))
      joined += (joined.empty() ? "" : ", ") + text;
    return joined;
  }

  void StackOf(const toml::table* table) {
    if (table == nullptr || !mistake_.ok()) return;
    TomlFields fields(*table, "[stack]", &mistake_);
    ledger::Stack& stack = file_.ledger.stack.emplace();
    stack.arms = ArmsOf(fields, "the changes");
    std::set<std::string> seen;
    for (const toml::table* left_out : fields.Tables("leave_out")) {
      if (!mistake_.ok()) return;
      OneLeaveOut(*left_out, &seen);
    }
    fields.NoOthers();
  }

  void OneLeaveOut(const toml::table& table, std::set<std::string>* seen) {
    TomlFields fields(table, "[[stack.leave_out]]", &mistake_);
    ledger::LeaveOut out;
    out.name = fields.Text("name", Need::kRequired).value_or("");
    out.runs = RunsOf(fields, "runs");
    fields.NoOthers();
    if (!mistake_.ok()) return;
    if (!names_.contains(out.name))
      mistake_.At(*table.get("name"), absl::StrCat("the name of a multiplier, found ", out.name,
                                                   DidYouMean(out.name, names_)));
    if (!seen->insert(out.name).second)
      mistake_.At(*table.get("name"),
                  absl::StrCat("names that differ, found ", out.name, " twice"));
    OneOfASeed(table, "runs", out.runs);
    InCommon(table, {file_.ledger.stack->arms.with, out.runs}, out.name);
    file_.ledger.stack->leave_outs.push_back(std::move(out));
  }

  TomlMistake mistake_;
  LedgerFile file_;
  std::map<std::string, size_t> index_;  // runs by id
  std::set<std::string> names_;
  std::map<std::string, std::vector<OpenFinding>> reports_;
};

}  // namespace

absl::StatusOr<LedgerFile> ParseLedger(const std::string& text, const std::string& path) {
  return LedgerReader(path).Read(text);
}

absl::StatusOr<LedgerFile> ReadLedger(const std::string& path) {
  absl::StatusOr<std::string> text = WholeFile(path, kMostBytes);
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", text.status().message()));
  return ParseLedger(*text, path);
}

}  // namespace plumbline::audit
