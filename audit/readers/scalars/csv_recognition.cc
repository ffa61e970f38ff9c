#include "audit/readers/scalars/csv_recognition.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/role/role.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/csv_row.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

// Returns the first 16 bytes in lower case.
std::string LowerStart(std::string_view name) {
  std::string lower(name.substr(0, 16));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

struct FirstRows {
  char separator = 0;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// Returns the header and the complete rows. If the text is not a table, returns nullopt.
std::optional<FirstRows> RowsOf(std::string_view text, bool all) {
  if (text.starts_with(kCsvMark)) text.remove_prefix(kCsvMark.size());
  FirstRows table;
  char separator = 0;
  size_t zeros = 0;  // number of damaged lines
  while (!text.empty() && table.rows.size() < kCsvLookRows) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !all) break;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (line.ends_with('\0')) line.remove_suffix(1);  // removes space that was never written
    if (line.find('\0') != std::string_view::npos) {
      if (separator == 0 || ++zeros > table.rows.size() + 1) return std::nullopt;
      continue;
    }
    if (IsBlank(line) || (separator == 0 && line.starts_with('#'))) continue;
    if (separator == 0) {
      if (line.starts_with('{') || line.starts_with('[') || IsOpen(line)) return std::nullopt;
      separator = SeparatorOf(line);
      if (separator == 0) return std::nullopt;
      table.header = SplitRow(line, separator);
      table.separator = separator;
    } else {
      const std::string points = separator == ',' ? WithPoints(line, table.header.size()) : "";
      table.rows.push_back(SplitRow(points.empty() ? line : points, separator));
    }
  }
  return separator == 0 ? std::nullopt : std::optional(std::move(table));
}

// Returns true if no column has the step, but the first one is an index (pandas), or one has the
// time.
bool HasOrder(const FirstRows& table) {
  if (table.header[0].empty() && RowsRise(table.rows, 0, table.separator, true)) return true;
  for (size_t i = 0; i < table.header.size(); ++i) {
    const std::string& name = table.header[i];
    if ((IsTimeName(name) || IsEpochName(name)) && RowsRise(table.rows, i, table.separator, false))
      return true;
  }
  return IsHistory(table.header, table.rows, table.separator);
}

bool HasUnit(const FirstRows& table) {
  for (size_t i = 0; i < table.header.size(); ++i) {
    if (IsUnitName(table.header[i]) && UnitRises(table.header, table.rows, i, table.separator))
      return true;
  }
  return false;
}

bool HasLoss(const FirstRows& table) {
  return std::any_of(table.header.begin(), table.header.end(),
                     [](const std::string& name) { return RoleByName(name) == SeriesRole::kLoss; });
}

bool LooksLikeScalars(const FirstRows& table, const std::string& step) {
  StepChoice choice(step);
  size_t fitting = 0, valued = 0;
  bool named = false, training = false;
  for (const std::string& name : table.header) {
    if (name.size() > 4096 || NumberOf(name)) return false;
    named |= choice.MayBe(name) && (!step.empty() || !IsEpochName(name));
    training |= !step.empty() || HasTrainingWord(name);
  }
  if (table.rows.empty()) return named && training;  // the table has only its header so far
  for (const std::vector<std::string>& row : table.rows) {
    bool other = false;
    for (size_t i = 0; i < std::min(row.size(), table.header.size()); ++i) {
      const std::optional<double> value =
          CellNumber(row[i], table.separator, choice.MayBe(table.header[i]));
      if (value) choice.Offer(table.header[i], *value);
      other |= value && !choice.MayBe(table.header[i]);
    }
    fitting += row.size() == table.header.size() ? 1 : 0;
    valued += other ? 1 : 0;
  }
  const std::optional<std::string> best = choice.Best();
  const bool ordered = (training && HasUnit(table)) || (HasLoss(table) && HasOrder(table));
  if (!best && step.empty() && ordered) return 2 * fitting >= table.rows.size();
  if (!best || (IsEpochName(*best) && !training)) return false;
  return valued > 0 && 2 * fitting >= table.rows.size();
}

}  // namespace

bool RowsRise(const std::vector<std::vector<std::string>>& rows, size_t column, char separator,
              bool whole) {
  double last = -1;
  return rows.size() > 1 && std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
           const auto value =
               column < row.size() ? CellNumber(row[column], separator, false) : std::nullopt;
           return value && (!whole || IsWhole(*value)) && *value > std::exchange(last, *value);
         });
}

bool IsClientName(std::string_view name) {
  static constexpr std::string_view kNames[] = {"client", "client_id", "clientid",
                                                "cid",    "client id", "client_idx",
                                                "party",  "party_id",  "participant"};
  constexpr size_t kLongest = 11;
  const char first = name.empty() ? ' ' : static_cast<char>(name[0] | 0x20);
  if (name.size() > kLongest || (first != 'c' && first != 'p')) return false;
  const std::string lower = LowerStart(name);
  return std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

bool UnitRises(const std::vector<std::string>& names,
               const std::vector<std::vector<std::string>>& rows, size_t column, char separator) {
  const auto client =
      static_cast<size_t>(std::find_if(names.begin(), names.end(), IsClientName) - names.begin());
  if (client == names.size() || client == column) return RowsRise(rows, column, separator, true);
  std::map<std::string, double> last;
  return rows.size() > 1 && std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
           if (row.size() <= std::max(column, client)) return false;
           const auto value = CellNumber(row[column], separator, false);
           const auto known = last.try_emplace(row[client], -1).first;
           return value && IsWhole(*value) && *value > std::exchange(known->second, *value);
         });
}

bool IsHistory(const std::vector<std::string>& names,
               const std::vector<std::vector<std::string>>& rows, char separator) {
  constexpr size_t kFewestRows = 3;
  bool loss = false;
  for (const std::string& name : names) {
    const SeriesRole role = RoleByName(name);
    loss |= role == SeriesRole::kLoss;
    const bool of_training = HasTrainingWord(name) || name.starts_with("val_");
    // A learning rate shows that it is a table of trials.
    if (!of_training || role == SeriesRole::kRate) return false;
  }
  return loss && rows.size() >= kFewestRows &&
         std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
           return row.size() == names.size() &&
                  std::all_of(row.begin(), row.end(), [&](const std::string& cell) {
                    return cell.empty() || CellNumber(cell, separator, false);
                  });
         });
}

bool IsUnitName(std::string_view name) {
  static constexpr std::string_view kNames[] = {"episode",
                                                "episodes",
                                                "ep",
                                                "round",
                                                "rounds",
                                                "comm_round",
                                                "fl_round",
                                                "itr",
                                                "itrs",
                                                "timestep",
                                                "batch",
                                                "batches",
                                                "batch_idx",
                                                "generation",
                                                "gen",
                                                "opt_step",
                                                "opt step",
                                                "optim_step",
                                                "iters",
                                                "num_iter",
                                                "iter_num",
                                                "num_iters",
                                                "n_steps",
                                                "n_step",
                                                "env_step",
                                                "env_steps",
                                                "timesteps",
                                                "minibatch",
                                                "frame",
                                                "frames",
                                                "global_itr",
                                                "update_num",
                                                "n_episodes",
                                                "samples",
                                                "seen_samples",
                                                "kimg",
                                                "tick",
                                                "cur_tick",
                                                "tokens_seen",
                                                "examples_seen",
                                                "samples_seen",
                                                "cycle",
                                                "trial",
                                                "server_round",
                                                "communication_round",
                                                "epoch_num",
                                                "total_env_steps",
                                                "rnd",
                                                "game",
                                                "games",
                                                "t",
                                                "step_idx"};
  const std::string lower = LowerStart(name);
  return std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

bool IsTimeName(std::string_view name) {
  static constexpr std::string_view kNames[] = {"time",      "wall time", "wall_time", "walltime",
                                                "timestamp", "elapsed",   "_timestamp"};
  const std::string lower = LowerStart(name);
  return std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

bool IsCsv(std::string_view path, std::string_view head) { return IsCsv(path, head, ""); }

bool IsCsv(std::string_view path, std::string_view head, const std::string& step) {
  constexpr size_t kLook = 256 << 10;
  std::string more;
  const bool full = head.size() >= Reader::kHeadBytes;
  if (IsCompressed(head) || (full && std::count(head.begin(), head.end(), '\n') < 2)) {
    more = FirstBytes(path, head, kLook);
    const std::optional<FirstRows> table = RowsOf(more, more.size() < kLook);
    return table && LooksLikeScalars(*table, step);
  }
  const std::optional<FirstRows> table = RowsOf(head, !full);
  return table && LooksLikeScalars(*table, step);
}

}  // namespace plumbline::audit
