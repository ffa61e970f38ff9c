#include "audit/readers/scalars/json_recognition.h"

#include <algorithm>
#include <optional>
#include <string>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/rollout/jsonl.h"
#include "audit/readers/rollout/known_maps.h"
#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

// Counts the members of the first objects.
class JsonLook : private JsonRecord::Taker {
 public:
  explicit JsonLook(const std::string& step) : choice_(step) {}

  void Object(JsonCursor* cursor, std::string_view text) {
    stepped_ = valued_ = false;
    if (!record_.Read(cursor, text, this, &shape_)) return;
    ++objects_;
    with_step_ += stepped_ && valued_ ? 1 : 0;
  }

  size_t objects() const { return objects_; }

  bool Scalars(size_t least) const {
    const std::optional<std::string> best = choice_.Best();
    if (!best || with_step_ < least || 2 * with_step_ < objects_) return false;
    return training_ || !choice_.wanted().empty() ||
           (!IsEpochName(*best) && shape_.numbers > shape_.texts + shape_.lists);
  }

 private:
  void Take(std::string_view name, double value) override {
    choice_.Offer(name, value);
    stepped_ |= choice_.MayBe(name);
    valued_ |= !choice_.MayBe(name);
    training_ |= HasTrainingWord(name);
  }

  StepChoice choice_;
  JsonRecord record_;
  JsonShape shape_;
  size_t objects_ = 0, with_step_ = 0;
  bool training_ = false, stepped_ = false, valued_ = false;
};

bool LooksLikeLines(std::string_view path, std::string_view text, bool all,
                    const std::string& step) {
  JsonLook look(step);
  size_t good = 0, bad = 0;
  while (!text.empty() && good < kLookObjects) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !all) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (IsBlankJson(line)) continue;
    const std::string_view object = WithoutComma(line);
    JsonCursor cursor(object);
    look.Object(&cursor, object);
    ++(cursor.failed() || !cursor.AtEnd() ? bad : good);
  }
  // One line may be damaged, and the last one may be truncated.
  if (bad > 1 && 4 * bad > good) return false;
  // A single object is not enough, unless the file's name states the format.
  const bool named = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return look.Scalars(named ? 1 : 2);
}

// Recognises objects over several lines, one after the other, with or without commas between them.
bool LooksLikeObjects(std::string_view text, const std::string& step) {
  JsonLook look(step);
  while (look.objects() < kLookObjects) {
    const size_t begin = text.find_first_not_of(" \t\r\n,");
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    JsonCursor cursor(text);
    if (cursor.Peek() != JsonCursor::Kind::kObject) return false;
    look.Object(&cursor, text);
    if (cursor.failed() && !cursor.cut()) return false;
    if (cursor.failed()) break;
    text.remove_prefix(cursor.offset());
  }
  return look.Scalars(2);
}

bool LooksLikeList(std::string_view text, const std::string& step) {
  JsonLook look(step);
  JsonCursor cursor(text);
  cursor.EnterList();
  while (look.objects() < kLookObjects && cursor.NextElement()) {
    if (cursor.Peek() != JsonCursor::Kind::kObject) break;
    look.Object(&cursor, text);
  }
  return look.Scalars(2);
}

// Returns true if the text contains `"log_history": [`.
bool HoldsHistory(std::string_view text) {
  size_t at = text.find("\"log_history\"");
  if (at == std::string_view::npos) return false;
  at = text.find_first_not_of(" \t\r\n", at + kHistory.size() + 2);
  if (at == std::string_view::npos || text[at] != ':') return false;
  at = text.find_first_not_of(" \t\r\n", at + 1);
  return at != std::string_view::npos && text[at] == '[';
}

// Recognises `{"loss": [2.5, 2.25], "val_loss": [...]}`: lists of numbers only, one of them from a
// training.
bool LooksLikeColumns(std::string_view text) {
  JsonCursor cursor(text);
  bool training = false;
  size_t lists = 0;
  if (!cursor.EnterObject()) return false;
  for (std::string_view key; cursor.NextMember(&key);) {
    training |= HasTrainingWord(key);
    if (cursor.Peek() != JsonCursor::Kind::kList || !cursor.EnterList()) return false;
    while (cursor.NextElement()) {
      const JsonCursor::Kind kind = cursor.Peek();
      if (kind != JsonCursor::Kind::kNumber && kind != JsonCursor::Kind::kWord) return false;
      if (!cursor.Skip()) break;
    }
    if (cursor.failed()) return cursor.cut() && training;
    ++lists;
  }
  return training && lists > 0 && (!cursor.failed() || cursor.cut());
}

bool IsRollout(std::string_view path, std::string_view head) {
  return NativeRollouts().Recognise(path, head) || PrimeRlRollouts().Recognise(path, head) ||
         NemoRlRollouts().Recognise(path, head) || !KnownMapFor(head).empty();
}

}  // namespace

std::vector<int64_t> StepsInColumns(std::string_view text) {
  JsonCursor cursor(text);
  if (!cursor.EnterObject()) return {};
  for (std::string_view key; cursor.NextMember(&key);) {
    const std::string name(key);
    if (StepNameRank(name) < 0 || cursor.Peek() != JsonCursor::Kind::kList) {
      if (!cursor.Skip()) return {};
      continue;
    }
    std::vector<int64_t> steps;
    if (!cursor.EnterList()) return {};
    while (cursor.NextElement()) {
      const size_t begin = cursor.offset();
      if (!cursor.Skip()) return {};
      const auto value = NumberOf(text.substr(begin, cursor.offset() - begin));
      if (!value || !IsWhole(*value)) return {};
      const auto step = static_cast<int64_t>(*value);
      if (!steps.empty() && step <= steps.back()) return {};
      steps.push_back(step);
    }
    return steps;
  }
  return {};
}

std::string_view WithoutComma(std::string_view line) {
  const size_t last = line.find_last_not_of(" \t\r");
  return last != std::string_view::npos && line[last] == ',' ? line.substr(0, last) : line;
}

bool JsonHasHistory(std::string_view text) {
  JsonCursor cursor(text);
  cursor.EnterObject();
  for (std::string_view key; cursor.NextMember(&key);) {
    if (key == kHistory) return cursor.Peek() == JsonCursor::Kind::kList;
    if (!cursor.Skip()) return false;
  }
  return false;
}

bool JsonHasColumns(std::string_view text) {
  JsonCursor cursor(text);
  std::string_view key;
  if (!cursor.EnterObject() || !cursor.NextMember(&key) || cursor.Peek() != JsonCursor::Kind::kList)
    return false;
  return cursor.EnterList() && cursor.NextElement() && IsJsonNumber(cursor.Peek());
}

bool BeginsJsonDocument(std::string_view line) {
  JsonCursor cursor(line);
  if (cursor.Peek() == JsonCursor::Kind::kList) return true;
  if (cursor.Peek() != JsonCursor::Kind::kObject) return false;
  const char last = line[line.find_last_not_of(" \t\r")];
  return last == '{' || last == '[' || last == ',' || JsonHasColumns(line) || JsonHasHistory(line);
}

bool IsTensorBoardList(std::string_view text) {
  constexpr size_t kLook = 8, kMembers = 3;
  constexpr double kLeastTime = 1e8;  // smallest plausible Unix time, in seconds
  JsonCursor cursor(text);
  if (cursor.Peek() != JsonCursor::Kind::kList || !cursor.EnterList()) return false;
  size_t rows = 0;
  while (rows < kLook && cursor.NextElement()) {
    std::vector<double> row;
    NumberText ignored;
    if (cursor.Peek() != JsonCursor::Kind::kList) return false;
    std::vector<OddElement> odd;
    if (!cursor.ReadNumbers(&row, &ignored, &odd)) break;
    if (row.size() != kMembers || !(row[0] > kLeastTime) || !IsWhole(row[1])) return false;
    ++rows;
  }
  return rows > 1;
}

bool IsJsonScalars(std::string_view path, std::string_view head) {
  return IsJsonScalars(path, head, "");
}

bool IsJsonScalars(std::string_view path, std::string_view head, const std::string& step) {
  constexpr size_t kLook = 256 << 10;
  std::string_view text = head;
  if (text.starts_with(kJsonMark)) text.remove_prefix(kJsonMark.size());
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool packed = IsCompressed(head);
  if (!packed && (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')))
    return false;
  const std::string more = packed || head.size() >= Reader::kHeadBytes
                               ? FirstBytes(path, head, kLook)
                               : std::string(head);
  const bool all = more.size() < kLook;
  text = more;
  if (text.starts_with(kJsonMark)) text.remove_prefix(kJsonMark.size());
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
  if (text.starts_with('[')) return LooksLikeList(text, step) || IsTensorBoardList(text);
  if (!text.starts_with('{')) return false;
  if (HoldsHistory(text)) return true;
  if (LooksLikeColumns(text)) return !IsRollout(path, head);
  // Scores of single samples are not series of a training.
  const bool objects = LooksLikeLines(path, text, all, step) || LooksLikeObjects(text, step);
  return objects && !IsRollout(path, head) && !HoldsSamplesAlone(text);
}

}  // namespace plumbline::audit
