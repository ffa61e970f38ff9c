// The machine that reads a pickle: stack, memo, and what each opcode does to them.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "audit/readers/pickle/machine.h"
#include "audit/readers/pickle/opcodes.h"

namespace plumbline::audit {

// A mark on the stack, and what there was when it was set: what lies behind it can be dropped as a
// whole. All counts fit: they are bounded by the limits and the bytes.
struct PickleMark {
  uint32_t at = 0;      // its byte
  uint32_t height = 0;  // of the stack
  uint32_t nodes = 0, lists = 0, calls = 0, owned = 0, runs = 0;
  uint32_t items = 0;
  uint32_t plain = 0;           // plain values that are kept
  uint32_t recalled = 0;        // values that were taken from the memo
  PickleId lowest = kNoPickle;  // of the values that were put something into since
};

// A place of the memo. A value that was dropped since is another one's number or none's: its byte
// tells.
struct PickleMemo {
  PickleId id = kNoPickle;
  uint32_t offset = 0;
};

// Bytes of a text beyond which its bytes are no number's.
inline constexpr size_t kMostOfScalar = 256;

// One pickle. Each step returns false when the pickle is refused: `problem` says why.
class PickleMachine {
 public:
  PickleMachine(std::string_view data, const PickleLimits& limits, PickleTree* tree);

  bool Run();
  size_t used() const { return at_; }
  std::optional<Problem> problem;

 private:
  bool Step(PickleOp op);
  bool StepOther(PickleOp op);

  // ---- bytes (source.cc)
  bool Fail(std::string text);
  // The next bytes; nothing: there are fewer.
  std::optional<std::string_view> Take(uint64_t size, const char* what);
  // Up to the next line feed, without it.
  std::optional<std::string_view> Line(const char* what);
  // Little-endian, of `width` bytes.
  std::optional<uint64_t> Number(size_t width, const char* what);
  // A length of `width` bytes, then that many.
  std::optional<std::string_view> Counted(size_t width, const char* what);

  // ---- the stack
  bool Push(PickleId id);
  std::optional<PickleId> Pop();
  // The value on top, which stays; nothing: there is none since the last mark.
  std::optional<PickleId> Top();
  bool PushMark();
  PickleMark PopMark();  // there is one
  // The values since the last mark, which goes to `mark`, where given.
  std::optional<std::vector<PickleId>> PopToMark(PickleMark* mark = nullptr);
  bool Remember(uint64_t place);
  bool Recall(uint64_t place);
  bool RecallDropped(PickleMemo* memo);

  // ---- values (build.cc); each pushes its value
  PickleId New(PickleKind kind);
  bool PushNew(PickleKind kind);
  bool PushWhole(int64_t value);
  bool PushReal(double value);
  bool PushSpan(PickleKind kind, std::string_view text);    // of the pickle's bytes
  bool PushOwned(PickleKind kind, std::string_view text);   // of nobody else's
  bool PushOldString(std::string_view text, bool in_data);  // Python 2's
  bool PushLong(std::string_view bytes);                    // two's complement
  bool PushDecimal(std::optional<std::string_view> line, bool truth);
  bool PushItems(PickleKind kind, std::vector<PickleId> items);
  bool PushTuple(size_t size);
  bool PushGlobal(std::string_view module, std::string_view name);
  bool PushPersistent(PickleId id);
  bool PushCall(PickleId callee, PickleId arguments, PickleId keywords = kNoPickle);
  bool StackGlobal();

  // ---- what is put into a value later (build.cc)
  bool Extend(std::optional<std::vector<PickleId>> items, PickleKind kind);
  bool ExtendAll(PickleKind kind);  // by what lies behind the last mark
  // The list, set or dict that a value takes items into; nothing: it takes none of this kind.
  std::optional<PickleId> Container(PickleId target, PickleKind kind);
  bool Build();
  bool Grow(std::vector<PickleId>* items, const std::vector<PickleId>& more);

  // ---- plain values beyond those that are kept (runs.cc)
  // What was made since the mark are plain values that nothing else leads to, many of them.
  bool IsPlainSince(const PickleMark& mark) const;
  // The value on top is a list that the limits name.
  bool IsKeptWhole() const;
  // Counts it among those that are kept. False: there is no room, or it is to be dropped.
  bool KeepPlain(const PickleMark& mark);
  // All of it goes; a run stands for it in `target`.
  bool Drop(const PickleMark& mark, uint64_t items, PickleId target, PickleKind kind);
  bool AddRun(PickleId container, PickleKind kind, const PickleRun& run);
  bool IsNumpyScalar(PickleId callee) const;
  // Something is put into this value.
  void Touch(PickleId target);

  // ---- calls (calls.cc)
  bool Reduce();
  bool NewObject(bool with_keywords);
  bool Instance();
  bool Object();
  bool Call(PickleId callee, PickleId arguments);
  // Pushes what a call of one of Python's own plain types makes; nothing: it is none.
  std::optional<bool> PlainCall(std::string_view name, PickleId arguments);
  bool SetVariant(bool variant);
  bool PushSameItems(PickleKind kind, PickleId of);
  bool PushBytesOf(PickleId id);
  bool PushPairs(PickleId arguments);
  std::optional<PickleId> Argument(PickleId arguments, size_t i) const;

  std::string_view data_;
  const PickleLimits& limits_;
  PickleTree& tree_;
  size_t at_ = 0;
  size_t op_at_ = 0;  // of the opcode that is being carried out
  bool stopped_ = false;
  size_t items_ = 0;  // of all containers
  std::vector<PickleId> stack_;
  std::vector<PickleMark> marks_;
  std::deque<PickleMemo> memo_;                         // as picklers number it
  absl::flat_hash_map<uint64_t, PickleMemo> far_memo_;  // places beyond
  PickleId special_ = 0;   // the last value that is not plain: a name, a call, a persistent id
  uint32_t plain_ = 0;     // values in long containers of plain ones, which are kept
  uint32_t recalled_ = 0;  // values that were taken from the memo
  absl::flat_hash_map<std::string, PickleId> globals_;
  PickleId none_ = 0, true_ = 0, false_ = 0;
};

// Of a key that a dict was given again Python keeps the first place and the last value.
void KeepLastOfKeys(PickleTree* tree);

// Cuts the circles that lead through a call. Refuses those of plain containers alone, and what is
// deeper or, unfolded, larger than the limits.
std::optional<Problem> CheckPickle(PickleTree* tree, const PickleLimits& limits);

}  // namespace plumbline::audit
