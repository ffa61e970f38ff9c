#include "audit/session/refusals.h"

#include <algorithm>
#include <cctype>

#include "audit/readers/input/file.h"
#include "audit/readers/rollout/known_maps.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_recognition.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kExample = "\"step 10: loss 2.5 lr 1e-4\"";

struct Known {
  std::string_view begin;  // bytes at the start of the file
  std::string_view found;
};
// Archives are not searched: the user unpacks them, because that needs disk space.
constexpr Known kKnown[] = {
    {"\x28\xb5\x2f\xfd",
     "a compressed file: unpack it with tar -xf FILE (a tar) or unzstd FILE, then audit its "
     "contents"},
    {"\xfd"
     "7zXZ",
     "a compressed file: unpack it with tar -xf FILE (a tar) or unxz FILE, then audit its "
     "contents"},
    {"BZh",
     "a compressed file: unpack it with tar -xf FILE (a tar) or bunzip2 FILE, then audit its "
     "contents"},
    {"\x1f\x8b",
     "a compressed file: unpack it with tar -xf FILE (a tar) or gunzip FILE, then audit its "
     "contents"},
    {"PK\x03\x04", "a compressed file: unpack it with unzip FILE, then audit its contents"},
    {"PAR1",
     "a Parquet file: write it as CSV (python -c \"import pandas; "
     "pandas.read_parquet('FILE').to_csv('FILE.csv', index=False)\"), then audit that"},
    {"SQLite format 3",
     "an SQLite database of an unknown tracker: export its metrics as CSV with a column of steps, "
     "then audit that"},
    {"\x89PNG", "an image: audit the data that it shows"},
    {"%PDF", "a PDF document: audit the data that it shows"},
};

bool StartsLike(std::string_view text, std::string_view lower) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

bool HasDigitAndLetter(std::string_view line) {
  const auto is = [&](int (*test)(int)) {
    return std::any_of(line.begin(), line.end(),
                       [test](char c) { return test(static_cast<unsigned char>(c)) != 0; });
  };
  return is(std::isdigit) && is(std::isalpha);
}

std::string_view FirstLineWithNumber(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && HasDigitAndLetter(line)) return line.substr(first);
  }
  return {};
}

// A file that a tool writes next to a readable file. It is identified by its name, if no reader
// accepts it.
struct KnownName {
  std::string_view ending, found;
};
constexpr KnownName kKnownNames[] = {
    {"all_results.json",
     "the last values of a transformers run: audit trainer_state.json in the same folder, which "
     "has all values"},
    {"train_results.json",
     "the last values of a transformers run: audit trainer_state.json in the same folder, which "
     "has all values"},
    {"eval_results.json",
     "the last values of a transformers run: audit trainer_state.json in the same folder, which "
     "has all values"},
    {"catboost_training.json",
     "a copy of other files of CatBoost: audit the folder, or learn_error.tsv"},
};

std::string RefusalOfRollout(std::string_view head) {
  const std::string_view map = KnownMapFor(head);
  if (!map.empty())
    return "a rollout file of " + std::string(map) + ": audit it with --map " + std::string(map);
  if (HoldsSamplesAlone(head))
    return "samples (prompts and answers) without log-probabilities: audit the run's log or the "
           "files of its tracker; for records that have them, --map FILE states their columns "
           "(docs/rollout_records.md)";
  return "";
}

bool HasTrainingLine(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (HasDigitAndLetter(line) && HasTrainingWord(line)) return true;
  }
  return false;
}

}  // namespace

bool IsOfAim(std::string_view path) {
  return path.find("/.aim/") != std::string_view::npos || path.starts_with(".aim/");
}

std::string RefusalOfAim(std::string_view path) {
  const size_t at = path.find(".aim/");
  const std::string repository(at == 0 ? "." : path.substr(0, at - 1));
  return "a part of the aim repository " + repository +
         ": export its metrics as CSV with aim's Python package (docs/scalars.md, aim), then audit "
         "that";
}

bool LooksLikeText(std::string_view head) {
  return !head.empty() && std::count_if(head.begin(), head.end(), [](char c) {
                            const auto byte = static_cast<unsigned char>(c);
                            return byte < 9 || (byte > 13 && byte < 27);
                          }) == 0;
}

bool LooksLikeLog(std::string_view path, std::string_view head) {
  static constexpr std::string_view kLogs[] = {".log", ".out", ".err"};
  static constexpr std::string_view kOthers[] = {".txt", ".csv", ".jsonl", ".tsv"};
  const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
  if (!LooksLikeText(head) || FirstLineWithNumber(head).empty()) return false;
  if (std::any_of(std::begin(kLogs), std::end(kLogs), ends)) return true;
  // requirements.txt is not a log.
  return std::any_of(std::begin(kOthers), std::end(kOthers), ends) && HasTrainingLine(head);
}

std::string RefusalOf(std::string_view path, std::string_view head) {
  if (IsOfAim(path)) return RefusalOfAim(path);
  for (const KnownName& known : kKnownNames) {
    if (path.ends_with(known.ending)) return std::string(known.found);
  }
  if (std::string rollout = RefusalOfRollout(head); !rollout.empty()) return rollout;
  if (head.size() > 262 && head.substr(257, 5) == "ustar")
    return "a compressed file: unpack it with tar -xf FILE, then audit its contents";
  for (const Known& known : kKnown) {
    if (head.starts_with(known.begin)) return std::string(known.found);
  }
  if (StartsLike(head, "<!doctype html") || StartsLike(head, "<html"))
    return "a web page: export the run's data as CSV or JSON from the tracker's page, then audit "
           "that";
  if (path.ends_with(".ipynb"))
    return "a notebook without the output of a training run: run its cells and save it, or audit "
           "the log of the training";
  if (!LooksLikeText(head)) return "none of them";
  if (const std::string names = OtherSeriesIn(head); !names.empty())
    return "none of them: its lines have a step and the series " + Quoted(names) +
           ", but none whose name belongs to a training (a loss, a learning rate, an accuracy, a "
           "reward)";
  const std::string_view line = FirstLineWithNumber(head);
  std::string text =
      "none of them: a line of a log needs a step (or an epoch), a name and a "
      "number, such as " +
      std::string(kExample) +
      "; a table or JSON needs a column or key of steps (another name: --map)";
  if (!line.empty()) text += "; the first line with a number is " + Quoted(line);
  return text;
}

}  // namespace plumbline::audit
