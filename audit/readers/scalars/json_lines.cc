// Reads scalars as JSON: one object per line, or one document. A document is a list of objects, or
// an object with a list `log_history` (Hugging Face's trainer_state.json).
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/role/role.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/json_cursor.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/csv_columns.h"
#include "audit/readers/scalars/emptied_keys.h"
#include "audit/readers/scalars/json_recognition.h"
#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/ranked_steps.h"
#include "audit/readers/scalars/step_axes.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

constexpr size_t kMostJsonLine = 64u << 20;
constexpr size_t kMostDocument = 256u << 20;

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
    if (shape_ == Shape::kUnknown && !IsBlankJson(text))
      shape_ = BeginsJsonDocument(text) ? Shape::kDocument : Shape::kLines;
    if (shape_ == Shape::kDocument) {
      Gather(text, offset);
    } else if (shape_ == Shape::kLines && !IsBlankJson(text)) {
      TakeLine(WithoutComma(text), offset, line.ended, sink);
    }
  }

  void Pause(PointSink* sink) override {
    if (!waiting_.empty()) Decide(sink);
  }

  void Finish(PointSink* sink) override {
    if (shape_ == Shape::kDocument) TakeDocument(sink);
    Pause(sink);
    document_ = {};
    emptied_.Report(&report());
    if (twice_ > 0)
      report().Note("expected each key once per object, found " + std::to_string(twice_) +
                    " with a repeated key, the first " + Quoted(PlainName(twice_name_)) +
                    ": the last value counts, but a NaN or infinite value is kept");
    if (const std::string note = steps_of_rows_.Note(step_name_); !note.empty())
      report().Note(note);
    if (const std::string note = axes_.Note(); !note.empty()) report().Note(note);
  }

 private:
  enum class Shape { kUnknown, kLines, kDocument, kRefused };
  struct Waiting {
    uint64_t offset;
    std::vector<std::pair<std::string, double>> members;
    std::string label;
    std::vector<std::string> nulls;
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

  // Collects the lines of a document, each at its byte offset.
  void Gather(std::string_view text, uint64_t offset) {
    if (document_.empty()) document_at_ = offset;
    const uint64_t before = offset - document_at_;
    if (before + text.size() > kMostDocument) {
      shape_ = Shape::kRefused;
      document_ = {};
      Refuse(offset, "a JSON document of at most " + std::to_string(kMostDocument) + " bytes",
             "a larger one (files with one object per line have no limit)", true);
      return;
    }
    document_.resize(before, '\n');
    document_.append(text);
  }

  void TakeLine(std::string_view text, uint64_t offset, bool ended, PointSink* sink) {
    JsonCursor cursor(text);
    TakeObject(&cursor, text, offset, sink);
    if (!cursor.failed() && cursor.AtEnd()) return;
    // The writer may not have finished the last line.
    Refuse(cursor, text, offset, ended || !cursor.cut());
  }

  // Reads consecutive documents; usually there is only one.
  void TakeDocument(PointSink* sink) {
    const std::string_view text = document_;
    JsonCursor cursor(text);
    const bool history = JsonHasHistory(text);
    if (JsonHasColumns(text)) TakeColumns(&cursor, text, sink);
    while (!cursor.failed() && (cursor.SkipComma(), cursor.Peek() != Kind::kNone)) {
      if (IsTensorBoardList(text)) {
        TakeTriples(&cursor, sink);
      } else if (cursor.Peek() == Kind::kList) {
        TakeList(&cursor, text, sink);
      } else if (history) {
        TakeHistory(&cursor, text, sink);
      } else {
        TakeObject(&cursor, text, document_at_, sink);
      }
    }
    if (cursor.failed() || !cursor.AtEnd()) Refuse(cursor, text, document_at_, !cursor.cut());
  }

  // Reads Keras's history: one list per series, one element per epoch.
  void TakeColumns(JsonCursor* cursor, std::string_view text, PointSink* sink) {
    if (!cursor->EnterObject()) return;
    decided_ = true;
    steps_ = StepsInColumns(text);
    for (std::string_view key; cursor->NextMember(&key);) {
      const std::string name(key);
      if (cursor->Peek() != Kind::kList || (!steps_.empty() && StepNameRank(name) >= 0)) {
        if (!cursor->Skip()) return;
        continue;
      }
      TakeColumn(cursor, text, name, sink);
      if (cursor->failed()) return;
    }
    if (!steps_.empty()) return;
    report().Note(
        "expected a step with each number, found one list of numbers per series: the positions in "
        "the lists, from 1, are the steps (epochs)");
  }

  void TakeColumn(JsonCursor* cursor, std::string_view text, const std::string& name,
                  PointSink* sink) {
    if (!cursor->EnterList()) return;
    const uint32_t column = sink->Column(PlainName(name));
    for (size_t at = 0; cursor->NextElement(); ++at) {
      const int64_t step = at < steps_.size() ? steps_[at] : static_cast<int64_t>(at + 1);
      const size_t begin = cursor->offset();
      const bool number = IsJsonNumber(cursor->Peek());
      if (!cursor->Skip()) return;
      const auto value = NumberOf(text.substr(begin, cursor->offset() - begin));
      if (number && value && (steps_.empty() || at < steps_.size())) {
        sink->Add(step, column, *value);
        report().records = std::max<uint64_t>(report().records, at + 1);
      }
    }
  }

  // Reads [[wall time, step, value], ...]. The file's name contains the tag.
  void TakeTriples(JsonCursor* cursor, PointSink* sink) {
    if (!cursor->EnterList()) return;
    decided_ = true;
    const uint32_t column = sink->Column(PlainName(TagOf(report().path)));
    while (cursor->NextElement()) {
      std::vector<double> row;
      std::vector<OddElement> odd;
      NumberText ignored;
      if (cursor->Peek() != Kind::kList || !cursor->ReadNumbers(&row, &ignored, &odd)) return;
      if (row.size() != 3 || !IsWhole(row[1])) continue;
      sink->Add(static_cast<int64_t>(row[1]), column, row[2]);
      ++report().records;
    }
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
    members_.clear();
    nulls_.clear();
    label_.clear();
    BeginObject();
    JsonShape shape;
    if (!record_.Read(cursor, text, this, &shape)) return;
    if (!decided_) {
      waiting_.push_back({offset, std::exchange(members_, {}), label_, std::exchange(nulls_, {})});
      if (waiting_.size() == kLookObjects) Decide(sink);
    } else {
      Emit(sink);
    }
  }

  void BeginObject() {
    values_.clear();
    step_.reset();
    epoch_.reset();
    loss_.reset();
    labelled_.reset();
    names_.Begin();
    if (axes_.on()) axes_.BeginRow();
    ++object_;
  }

  // Takes a member of the current object.
  void Take(std::string_view name, double value) override {
    if (!decided_) {
      choice_.Offer(name, value);
      members_.emplace_back(name, value);
      if (choice_.wanted().empty()) axes_.Look(name, value);
    } else if (name == step_name_) {
      if (IsWhole(value)) step_ = static_cast<int64_t>(value);
    } else if (!axes_.on() || !axes_.Take(name, value)) {
      if (name == epoch_name_ && IsWhole(value)) epoch_ = static_cast<int64_t>(value);
      if (steps_of_rows_.IsRank(name)) {
        steps_of_rows_.Rank(value);
        if (steps_of_rows_.several()) return;
      }
      if (name == kLabelled) {
        labelled_ = value;
        return;
      }
      values_.push_back({names_.Of(sink_, "", name), value});
      if (axes_.on()) NameColumn(values_.back().column, name);
      if (name == loss_name_) loss_ = value;
      CountTwice(values_.back().column, name);
    }
  }

  // Takes the series' name in {"metric": "train_loss", "value": 2.5, "step": 1}.
  void TakeText(std::string_view name, std::string_view text) override {
    static constexpr std::string_view kLabels[] = {"metric", "key", "name", "tag"};
    constexpr size_t kLongest = 96;
    if (text.empty() || text.size() > kLongest || text.find('\\') != std::string_view::npos) return;
    if (std::find(std::begin(kLabels), std::end(kLabels), name) != std::end(kLabels)) label_ = text;
  }

  void TakeNull(std::string_view name) override {
    constexpr size_t kMostNulls = 1024;
    if (!decided_) {
      if (nulls_.size() < kMostNulls) nulls_.emplace_back(name);
      return;
    }
    const uint32_t column = names_.Find(name);
    if (column != PointSink::kNoColumn) emptied_.Null(column, name);
  }

  // Keeps the name of a column, by which its axis is found.
  void NameColumn(uint32_t column, std::string_view name) {
    if (column == PointSink::kNoColumn) return;
    if (column >= of_columns_.size()) of_columns_.resize(column + 1);
    if (of_columns_[column].empty()) of_columns_[column] = name;
  }

  void CountTwice(uint32_t column, std::string_view name) {
    if (column == PointSink::kNoColumn) return;
    if (column >= seen_in_.size()) seen_in_.resize(column + 1, 0);
    if (std::exchange(seen_in_[column], object_) != object_) return;
    if (twice_++ == 0) twice_name_ = name;
  }

  // If no object has the step that the user names, ignores this name, because it is meant for other
  // files.
  std::optional<std::string> BestStep() {
    std::optional<std::string> best = choice_.Best();
    if (choice_.wanted().empty()) return best;
    report().step_stated = best ? StepStated::kFound : StepStated::kMissing;
    if (best) return best;
    choice_ = StepChoice("");
    for (const Waiting& waiting : waiting_) {
      for (const auto& [name, value] : waiting.members) choice_.Offer(name, value);
    }
    best = choice_.Best();
    if (best)
      report().Note("expected the key that --map declares as the step, found none: it is " +
                    Quoted(PlainName(*best)) + " here");
    return best;
  }

  void Decide(PointSink* sink) {
    const std::optional<std::string> best = BestStep();
    const std::string batch = choice_.Batch();
    step_name_ = batch.empty() ? best.value_or("") : batch;
    if (step_name_ != choice_.Epoch()) epoch_name_ = choice_.Epoch();
    if (!best) {
      Refuse(waiting_[0].offset,
             "a step (step, global_step, iteration, epoch, ...; another: --map)", "objects without",
             true);
    }
    for (const Waiting& waiting : waiting_) {
      for (const auto& [name, value] : waiting.members) {
        if (loss_name_.empty() && RoleByName(name) == SeriesRole::kLoss) loss_name_ = name;
        steps_of_rows_.Offer(name, value, step_name_);
      }
      steps_of_rows_.EndRow();
    }
    steps_of_rows_.Decide(sink);
    if (choice_.wanted().empty()) axes_.Begin(step_name_);
    decided_ = true;
    sink_ = sink;
    for (const Waiting& waiting : std::exchange(waiting_, {})) {
      BeginObject();
      for (const auto& [name, value] : waiting.members) Take(name, value);
      label_ = waiting.label;
      for (const std::string& name : waiting.nulls) TakeNull(name);
      Emit(sink);
    }
  }

  void Emit(PointSink* sink) {
    if (labelled_)
      values_.push_back({names_.Of(sink, "", label_.empty() ? kLabelled : label_), *labelled_});
    if (values_.empty()) return;
    ++report().records;
    if (axes_.on()) return EmitOnAxes(sink);
    if (!step_) return sink->Unplaced(values_.size());
    const int64_t step = PlaceRow(sink);
    for (const Value& v : values_) AddValue(step, v, sink);
  }

  // Returns the step of the current object, whose key of the step has a value.
  int64_t PlaceRow(PointSink* sink) {
    steps_of_rows_.BeginPoints(*step_, sink);
    return steps_of_rows_.Of(*step_, epoch_, loss_);
  }

  void EmitOnAxes(PointSink* sink) {
    std::optional<int64_t> main;
    if (step_) axes_.Main(main.emplace(PlaceRow(sink)));
    uint64_t unplaced = 0;
    for (const Value& v : values_) {
      const bool named = v.column < of_columns_.size();
      const auto step = axes_.Of(named ? of_columns_[v.column] : "", main, epoch_);
      if (step) AddValue(*step, v, sink);
      unplaced += step ? 0 : 1;
    }
    if (unplaced > 0) sink->Unplaced(unplaced);
  }

  void AddValue(int64_t step, const Value& v, PointSink* sink) {
    sink->Add(step, v.column, v.value);
    emptied_.Value(v.column, step);
  }

  static constexpr std::string_view kLabelled = "value";

  Shape shape_ = Shape::kUnknown;
  StepChoice choice_;
  bool decided_ = false;
  std::string step_name_, epoch_name_;  // epoch_name_ is empty if no epoch is next to the step
  std::string loss_name_;               // name of the first training loss
  RankedSteps steps_of_rows_;
  StepAxes axes_;
  std::vector<std::string> of_columns_;  // names of the columns; empty without other axes
  std::vector<int64_t> steps_;           // steps of an object of lists
  std::vector<Waiting> waiting_;         // objects from which the step's key is chosen
  std::string document_;
  uint64_t document_at_ = 0;
  JsonRecord record_;
  ColumnNames names_;
  PointSink* sink_ = nullptr;  // valid while an object is read
  // Members of the current object.
  std::vector<std::pair<std::string, double>> members_;
  std::vector<std::string> nulls_;
  std::vector<Value> values_;
  std::optional<int64_t> step_, epoch_;
  std::optional<double> loss_;
  std::string label_;  // name that the object gives to its "value"
  std::optional<double> labelled_;
  EmptiedKeys emptied_;
  uint64_t object_ = 0;            // number of the current object
  std::vector<uint64_t> seen_in_;  // column -> newest object that has it
  uint64_t twice_ = 0;             // number of keys that occur twice in an object
  std::string twice_name_;         // the first such key
};

std::unique_ptr<PointFile> OpenJson(InputReport* report, const ScalarOptions& options) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<JsonFile>(report, std::move(stream), options);
}

}  // namespace

const PointFormat& JsonLinesFormat() {
  static constexpr PointFormat kFormat = {"jsonl", IsJsonScalars, OpenJson};
  return kFormat;
}

}  // namespace plumbline::audit
