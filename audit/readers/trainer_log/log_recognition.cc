// Recognises logs by their repetition: lines have a step, names and numbers, and the same words
// around them. A text about a run ("Tried step=3000 loss=nan again") uses other words each time.
#include "audit/readers/trainer_log/log_recognition.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/log_document/log_document.h"
#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_wrapping.h"
#include "audit/readers/rollout/known_maps.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {
namespace {

// Documents and sources quote logs, but are not logs.
bool IsDocument(std::string_view path) {
  static constexpr std::string_view kEndings[] = {
      ".md",  ".rst", ".py",   ".ipynb", ".c",    ".cc",    ".cpp",  ".h",    ".cu", ".rs",
      ".go",  ".js",  ".html", ".tex",   ".yaml", ".yml",   ".toml", ".json", ".sh", ".diff",
      ".xml", ".ini", ".cfg",  ".bib",   ".java", ".patch", ".csv",  ".tsv"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

// True for a comment or a quotation.
bool IsQuoted(std::string_view prefix) {
  const size_t first = prefix.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  prefix.remove_prefix(first);
  return prefix.starts_with('#') || prefix.starts_with("//") || prefix.starts_with("> ") ||
         ((prefix.starts_with("- ") || prefix.starts_with("* ")) && prefix.size() > 2) ||
         prefix.starts_with("print") || prefix.find("print(") != std::string_view::npos;
}

bool IsNotes(std::string_view path) {
  static constexpr std::string_view kStems[] = {"notes",   "note",  "readme",    "todo",
                                                "journal", "diary", "changelog", "minutes"};
  std::string name(path.substr(path.rfind('/') + 1));
  name.resize(std::min(name.size(), name.find('.')));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(std::begin(kStems), std::end(kStems), [&](std::string_view stem) {
    return name == stem || name.ends_with("_" + std::string(stem)) ||
           name.ends_with("-" + std::string(stem));
  });
}

// True for letters with or without a punctuation mark: "Tried", "again,"; but not "INFO", "ms",
// "a".
bool IsProseWord(std::string_view token) {
  static constexpr Bytes kMarks(".,;!?");
  static constexpr std::string_view kOfLogs[] = {
      "train",     "training",   "validation", "validating", "valid",  "val",
      "eval",      "evaluation", "test",       "loss",       "step",   "steps",
      "iteration", "iter",       "epoch",      "rank",       "global", "trainer",
      "info",      "nan",        "inf",        "infinity",   "sec",    "min"};
  while (!token.empty() && kMarks[token.back()]) token.remove_suffix(1);
  if (token.size() < 3 || !std::all_of(token.begin(), token.end(), IsPairLetter)) return false;
  const bool shouts = std::none_of(token.begin(), token.end(), [](char c) { return c >= 'a'; });
  std::string lower(token);
  for (char& c : lower) c = static_cast<char>(c | 0x20);
  return !shouts && std::find(std::begin(kOfLogs), std::end(kOfLogs), lower) == std::end(kOfLogs);
}

// Returns the words of a line that are prose. `tokens` is the number of all its words.
std::string ProseWords(std::string_view line, size_t* words, size_t* tokens) {
  std::string list;
  *words = *tokens = 0;
  while (!line.empty()) {
    const std::string_view token = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(std::min(line.size(), token.size() + 1));
    if (token.empty()) continue;
    ++*tokens;
    if (!IsProseWord(token)) continue;
    ++*words;
    list.append(token).push_back(' ');
  }
  return list;
}

// Returns the line without the names of its series.
std::string WithoutNames(const LogRecord& record) {
  std::string text(record.line);
  for (const LogRecord::Value& v : record.values) {
    // Names of a dictionary may be in another buffer than the line.
    const size_t at = reinterpret_cast<uintptr_t>(v.name.data()) -
                      reinterpret_cast<uintptr_t>(record.line.data());
    if (at < text.size() && v.name.size() <= text.size() - at)
      std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), v.name.size(), '#');
  }
  const size_t brace = text.find('{');
  if (record.mark.kind == LogMark::Kind::kDictionary && brace != std::string::npos)
    text.resize(brace);
  return text;
}

// Evidence in the lines of a text that it is a log.
class LogEvidence {
 public:
  explicit LogEvidence(std::string_view path)
      : named_(path.ends_with(".log") || path.ends_with(".out") || path.ends_with(".err")),
        text_(path.ends_with(".txt")),
        notes_(IsNotes(path)) {}

  // Reads lines until the result is certain.
  void Look(std::string_view text, bool all) {
    parser_.LookAt(text.substr(0, kLanguageSample));
    while (!text.empty() && !Enough()) {
      const size_t end = text.find_first_of("\n\r");
      if (end == std::string_view::npos && !all) return;
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      Take(line);
    }
  }

  bool IsLog() const {
    if (repeated_ >= kRepeats) return true;
    if ((named_ || text_) && !notes_ && nameless_ >= kNameless && nameless_ >= others_) return true;
    if (notes_ || (!named_ && sentences_ > 0 && 2 * sentences_ >= others_)) return false;
    return clean_ >= (named_ || text_ ? 1 : 2);
  }

 private:
  static constexpr size_t kLanguageSample = 64 << 10;
  // Required repetitions of a line with words around its numbers.
  static constexpr size_t kRepeats = 3;
  static constexpr size_t kMostShapes = 64;  // limit of shapes
  static constexpr size_t kNameless = 8;     // required lines "100: 2.5" with rising steps

  // True if later lines cannot change the answer.
  bool Enough() const { return repeated_ >= kRepeats || (named_ && !notes_ && clean_ > 0); }

  void Take(std::string_view line) {
    size_t words = 0, tokens = 0;
    if (!parser_.Parse(line, true, &record_)) {
      for (const std::string& row : parser_.TakeLiteral()) Take(row);
      if (line.find_first_not_of(" \t") == std::string_view::npos) return;
      ++others_;
      ProseWords(line, &words, &tokens);
      sentences_ += words >= 4 && 10 * words >= 7 * tokens && EndsSentence(line) ? 1 : 0;
      return;
    }
    if (!HasTraining(record_) || IsQuoted(record_.prefix)) return;
    if (record_.mark.nameless) {
      nameless_ += record_.mark.step > last_nameless_ ? 1 : 0;
      last_nameless_ = record_.mark.step;
      return;
    }
    std::string shape = ProseWords(WithoutNames(record_), &words, &tokens);
    clean_ += words <= (named_ ? 1u : 0u) ? 1 : 0;
    for (const LogRecord::Value& v : record_.values) shape.append(v.name).push_back('|');
    if (shapes_.size() < kMostShapes || shapes_.contains(shape))
      repeated_ = std::max(repeated_, ++shapes_[shape]);
  }

  static bool EndsSentence(std::string_view line) {
    const char last = line[line.find_last_not_of(" \t")];
    return (last == '.' || last == '!' || last == '?') && !line.ends_with("..");
  }

  const bool named_, text_, notes_;
  LogParser parser_;
  LogRecord record_;
  std::map<std::string, size_t> shapes_;  // shape -> number of lines about training
  size_t repeated_ = 0;                   // number of lines of the most frequent shape
  size_t clean_ = 0;                      // number of lines without other words
  size_t nameless_ = 0;                   // number of lines with a number without a name
  int64_t last_nameless_ = -1;            // step of the newest such line
  // Number of lines without training; number of prose lines among them.
  size_t others_ = 0, sentences_ = 0;
};

// Returns true for containers of other formats, which have many zero bytes. A log has few. A file
// with the name of a log may have a block of zeros where the host crashed, or at its beginning, if
// it was truncated while the trainer had it open (copytruncate).
bool IsBinary(std::string_view path, std::string_view head) {
  constexpr std::ptrdiff_t kMostZeros = 64;
  constexpr size_t kMostBlocks = 16, kFar = 1 << 20;
  static constexpr std::string_view kLogs[] = {".log", ".out", ".err", ".txt"};
  const bool named = std::any_of(std::begin(kLogs), std::end(kLogs),
                                 [&](std::string_view ending) { return path.ends_with(ending); });
  std::string more;
  if (named && head.find_first_not_of('\0') == std::string_view::npos) {
    more = FirstBytes(path, head, kFar);
    head = more;
  }
  while (head.ends_with('\0')) head.remove_suffix(1);
  if (!named) return head.empty() || std::count(head.begin(), head.end(), '\0') > kMostZeros;
  size_t blocks = 0;
  for (size_t i = 1; i < head.size(); ++i) blocks += head[i] == '\0' && head[i - 1] != '\0' ? 1 : 0;
  return head.empty() || blocks > kMostBlocks;
}

}  // namespace

// True for a collector's output: one object for each line of a log.
static bool IsCollected(std::string_view path, std::string_view head) {
  std::string scratch;
  return path.ends_with(".json") && !LineInJson(head.substr(0, head.find('\n')), &scratch).empty();
}

// True for a document whose texts are the log of a training.
static bool IsTrainedDocument(LogDocument document, std::string_view path, std::string_view head) {
  constexpr size_t kLookInto = 16 << 20;  // bytes; a notebook has large pictures
  LogEvidence evidence(path);
  evidence.Look(LinesOf(document, FirstBytes(path, head, kLookInto)), true);
  return evidence.IsLog();
}

// True for a table of messages, as log services export it: "timestamp,message".
static bool IsTableOfMessages(std::string_view path, std::string_view head) {
  if (!path.ends_with(".csv") && !path.ends_with(".tsv")) return false;
  std::string header(head.substr(0, std::min<size_t>(head.find('\n'), 256)));
  std::transform(header.begin(), header.end(), header.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return header.find("message") != std::string::npos ||
         header.find("textpayload") != std::string::npos;
}

bool IsTrainerLog(std::string_view path, std::string_view head) {
  constexpr size_t kLook = 1 << 20;
  constexpr size_t kTail = 64 << 10;
  const LogDocument document = DocumentOf(path, head);
  if (document != LogDocument::kNone) return IsTrainedDocument(document, path, head);
  if (!KnownMapFor(head).empty() || HoldsSamplesAlone(head)) return false;
  const bool collected = IsCollected(path, head) || IsTableOfMessages(path, head);
  if ((IsDocument(path) && !collected) || JsonLinesFormat().recognise(path, head) ||
      CsvFormat().recognise(path, head))
    return false;
  const bool packed = IsCompressed(head);
  if (!packed && IsBinary(path, head)) return false;
  const bool short_file = !packed && head.size() < Reader::kHeadBytes;
  if (!packed) {
    LogEvidence first(path);
    first.Look(head, short_file);
    if (short_file || first.IsLog()) return first.IsLog();
  }
  const std::string more = FirstBytes(path, head, kLook);
  LogEvidence evidence(path);
  evidence.Look(more, more.size() < kLook);
  if (evidence.IsLog() || packed || more.size() < kLook) return evidence.IsLog();
  // The text before the first step may be longer than the beginning, so reads the end, too.
  evidence.Look(LastBytes(path, kTail), true);
  return evidence.IsLog();
}

std::string OtherSeriesIn(std::string_view head) {
  constexpr size_t kMostNamed = 8, kFewestLines = 3;
  std::set<std::string> names;
  size_t lines = 0;
  LogParser parser;
  LogRecord record;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 1));
    if (!parser.Parse(line, true, &record) || record.how == LogRecord::Step::kCounted) continue;
    if (HasTraining(record)) return "";
    ++lines;
    for (const LogRecord::Value& v : record.values)
      if (names.size() < kMostNamed) names.emplace(v.name);
  }
  std::string list;
  for (const std::string& name : names) list.append(list.empty() ? "" : ", ").append(name);
  return lines >= kFewestLines ? list : "";
}

}  // namespace plumbline::audit
