// Scalars as JSON: an object a line, or one document, which is a list of objects, or an object
// whose `log_history` is one (Hugging Face's trainer_state.json).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/rollout/jsonl.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

constexpr size_t kMostJsonLine = 64u << 20;
constexpr size_t kMostDocument = 256u << 20;
constexpr size_t kLookObjects = 64;  // by which the step's key is told
constexpr std::string_view kJsonMark = "\xEF\xBB\xBF";
constexpr std::string_view kHistory = "log_history";

bool IsBlankJson(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

class JsonFile : public TextPointFile, private JsonRecord::Taker {
 public:
  JsonFile(InputReport* report, std::unique_ptr<ByteStream> stream, const ScalarOptions& options)
      : TextPointFile(report, std::move(stream), kMostJsonLine, LineEnds::kNewline),
        choice_(options.step) {}

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    std::string_view text = line.text;
    uint64_t offset = line.offset;
    if (offset == 0 && text.starts_with(kJsonMark)) {
      text.remove_prefix(kJsonMark.size());
      offset += kJsonMark.size();
    }
    if (line.too_long) {
      Refuse(line.offset, "a line of at most " + std::to_string(kMostJsonLine) + " bytes",
             "a longer one", true);
      return;
    }
    if (shape_ == Shape::kUnknown && !IsBlankJson(text)) shape_ = ShapeOf(text);
    if (shape_ == Shape::kDocument) {
      Gather(text, offset);
    } else if (shape_ == Shape::kLines && !IsBlankJson(text)) {
      TakeLine(text, offset, line.ended, sink);
    }
  }

  void Pause(PointSink* sink) override {
    if (!waiting_.empty()) Decide(sink);
  }

  void Finish(PointSink* sink) override {
    if (shape_ == Shape::kDocument) TakeDocument(sink);
    Pause(sink);
    document_ = {};
  }

 private:
  enum class Shape { kUnknown, kLines, kDocument, kRefused };
  struct Waiting {
    uint64_t offset;
    std::vector<std::pair<std::string, double>> members;
  };
  struct Value {
    uint32_t column;
    double value;
  };

  void Refuse(uint64_t offset, const std::string& expected, const std::string& found, bool error) {
    report().Add(offset, "expected " + expected + ", found " + found, error);
  }

  void Refuse(const JsonCursor& cursor, std::string_view text, uint64_t offset, bool error) {
    const size_t at = cursor.offset();
    const std::string found = at < text.size() ? Quoted(text.substr(at, 1)) : "its end";
    Refuse(offset + at, std::string(cursor.expected()) + " in JSON", found, error);
  }

  // By the first line that is not empty. An object that goes on in the next line, and one that
  // holds all the others, is a document.
  static Shape ShapeOf(std::string_view text) {
    JsonCursor cursor(text);
    if (cursor.Peek() == Kind::kList) return Shape::kDocument;
    if (cursor.Peek() != Kind::kObject) return Shape::kLines;
    const char last = text[text.find_last_not_of(" \t\r")];
    return last == '{' || last == '[' || last == ',' || HasHistory(text) ? Shape::kDocument
                                                                         : Shape::kLines;
  }

  // The text is an object with such a list, as far as it goes.
  static bool HasHistory(std::string_view text) {
    JsonCursor cursor(text);
    cursor.EnterObject();
    for (std::string_view key; cursor.NextMember(&key);) {
      if (key == kHistory) return cursor.Peek() == Kind::kList;
      if (!cursor.Skip()) return false;
    }
    return false;
  }

  // Lines of a document, each at its byte.
  void Gather(std::string_view text, uint64_t offset) {
    if (document_.empty()) document_at_ = offset;
    const uint64_t before = offset - document_at_;
    if (before + text.size() > kMostDocument) {
      shape_ = Shape::kRefused;
      document_ = {};
      Refuse(offset, "a JSON document of at most " + std::to_string(kMostDocument) + " bytes",
             "a larger one (one object a line has no bound)", true);
      return;
    }
    document_.resize(before, '\n');
    document_.append(text);
  }

  void TakeLine(std::string_view text, uint64_t offset, bool ended, PointSink* sink) {
    JsonCursor cursor(text);
    TakeObject(&cursor, text, offset, sink);
    if (!cursor.failed() && cursor.AtEnd()) return;
    // The last line may still be written.
    Refuse(cursor, text, offset, ended || !cursor.cut());
  }

  // One value after the other; mostly there is one.
  void TakeDocument(PointSink* sink) {
    const std::string_view text = document_;
    JsonCursor cursor(text);
    const bool history = HasHistory(text);
    while (!cursor.failed() && cursor.Peek() != Kind::kNone) {
      if (cursor.Peek() == Kind::kList) {
        TakeList(&cursor, text, sink);
      } else if (history) {
        TakeHistory(&cursor, text, sink);
      } else {
        TakeObject(&cursor, text, document_at_, sink);
      }
    }
    if (cursor.failed() || !cursor.AtEnd()) Refuse(cursor, text, document_at_, !cursor.cut());
  }

  void TakeHistory(JsonCursor* cursor, std::string_view text, PointSink* sink) {
    if (!cursor->EnterObject()) return;
    for (std::string_view key; cursor->NextMember(&key);) {
      if (key == kHistory && cursor->Peek() == Kind::kList) {
        TakeList(cursor, text, sink);
      } else if (!cursor->Skip()) {
        return;
      }
    }
  }

  void TakeList(JsonCursor* cursor, std::string_view text, PointSink* sink) {
    if (!cursor->EnterList()) return;
    while (cursor->NextElement()) {
      if (cursor->Peek() == Kind::kObject) {
        TakeObject(cursor, text, document_at_, sink);
      } else if (!cursor->Skip()) {
        return;
      }
    }
  }

  void TakeObject(JsonCursor* cursor, std::string_view text, uint64_t base, PointSink* sink) {
    const uint64_t offset = base + cursor->offset();
    sink_ = sink;
    values_.clear();
    members_.clear();
    step_.reset();
    names_.Begin();
    JsonShape shape;
    if (!record_.Read(cursor, text, this, &shape)) return;
    if (!decided_) {
      waiting_.push_back({offset, std::exchange(members_, {})});
      if (waiting_.size() == kLookObjects) Decide(sink);
    } else {
      Emit(sink);
    }
  }

  // A member of the object that is read.
  void Take(std::string_view name, double value) override {
    if (!decided_) {
      choice_.Offer(name, value);
      members_.emplace_back(name, value);
    } else if (name == step_name_) {
      if (IsWhole(value)) step_ = static_cast<int64_t>(value);
    } else {
      values_.push_back({names_.Of(sink_, "", name), value});
    }
  }

  void Decide(PointSink* sink) {
    const std::optional<std::string> best = choice_.Best();
    step_name_ = best.value_or("");
    if (!best) {
      Refuse(waiting_[0].offset,
             "a step (step, global_step, iteration, epoch, ...; another: --map)", "objects without",
             true);
    }
    decided_ = true;
    sink_ = sink;
    for (const Waiting& waiting : std::exchange(waiting_, {})) {
      values_.clear();
      step_.reset();
      names_.Begin();
      for (const auto& [name, value] : waiting.members) Take(name, value);
      Emit(sink);
    }
  }

  void Emit(PointSink* sink) {
    if (values_.empty()) return;
    ++report().records;
    if (!step_) sink->Unplaced(values_.size());
    for (const Value& v : values_) {
      if (step_) sink->Add(*step_, v.column, v.value);
    }
  }

  Shape shape_ = Shape::kUnknown;
  StepChoice choice_;
  bool decided_ = false;
  std::string step_name_;
  std::vector<Waiting> waiting_;  // objects by which the step's key is chosen
  std::string document_;
  uint64_t document_at_ = 0;
  JsonRecord record_;
  ColumnNames names_;
  PointSink* sink_ = nullptr;  // while an object is read
  // Of the object that is read.
  std::vector<std::pair<std::string, double>> members_;
  std::vector<Value> values_;
  std::optional<int64_t> step_;
};

// ---- recognition ---------------------------------------------------------------------------

// Counts what the first objects hold.
class Look : private JsonRecord::Taker {
 public:
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
    return training_ || (!IsEpochName(*best) && shape_.numbers > shape_.texts + shape_.lists);
  }

 private:
  void Take(std::string_view name, double value) override {
    choice_.Offer(name, value);
    stepped_ |= choice_.MayBe(name);
    valued_ |= !choice_.MayBe(name);
    training_ |= HasTrainingWord(name);
  }

  StepChoice choice_{""};
  JsonRecord record_;
  JsonShape shape_;
  size_t objects_ = 0, with_step_ = 0;
  bool training_ = false, stepped_ = false, valued_ = false;
};

bool LooksLikeLines(std::string_view path, std::string_view text, bool all) {
  Look look;
  size_t good = 0, bad = 0;
  while (!text.empty() && good < kLookObjects) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !all) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (IsBlankJson(line)) continue;
    JsonCursor cursor(line);
    look.Object(&cursor, line);
    ++(cursor.failed() || !cursor.AtEnd() ? bad : good);
  }
  if (bad > 1 && 4 * bad > good) return false;  // one may be damaged, or the last one cut
  // One object alone may be anything, unless the name says what it is.
  const bool named = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return look.Scalars(named ? 1 : 2);
}

bool LooksLikeList(std::string_view text) {
  Look look;
  JsonCursor cursor(text);
  cursor.EnterList();
  while (look.objects() < kLookObjects && cursor.NextElement()) {
    if (cursor.Peek() != Kind::kObject) break;
    look.Object(&cursor, text);
  }
  return look.Scalars(2);
}

// `"log_history": [` somewhere in it.
bool HoldsHistory(std::string_view text) {
  size_t at = text.find("\"log_history\"");
  if (at == std::string_view::npos) return false;
  at = text.find_first_not_of(" \t\r\n", at + kHistory.size() + 2);
  if (at == std::string_view::npos || text[at] != ':') return false;
  at = text.find_first_not_of(" \t\r\n", at + 1);
  return at != std::string_view::npos && text[at] == '[';
}

bool IsRollout(std::string_view path, std::string_view head) {
  return NativeRollouts().Recognise(path, head) || PrimeRlRollouts().Recognise(path, head) ||
         NemoRlRollouts().Recognise(path, head);
}

bool RecogniseJson(std::string_view path, std::string_view head) {
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
  if (text.starts_with('[')) return LooksLikeList(text);
  if (!text.starts_with('{')) return false;
  if (HoldsHistory(text)) return true;
  return LooksLikeLines(path, text, all) && !IsRollout(path, head);
}

std::unique_ptr<PointFile> OpenJson(InputReport* report, const ScalarOptions& options) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<JsonFile>(report, std::move(stream), options);
}

}  // namespace

const PointFormat& JsonLinesFormat() {
  static constexpr PointFormat kFormat = {"jsonl", RecogniseJson, OpenJson};
  return kFormat;
}

}  // namespace plumbline::audit
