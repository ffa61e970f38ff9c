// The machine that reads a pickle: stack, memo, and the effect of each opcode on them.
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

// A mark on the stack, and the state when it was set, so that all values after it can be dropped
// together. The limits and the bytes bound all counts, so they fit in 32 bits.
struct PickleMark {
  uint32_t at = 0;      // offset of its byte
  uint32_t height = 0;  // height of the stack
  uint32_t nodes = 0, lists = 0, calls = 0, owned = 0, runs = 0;
  uint32_t items = 0;
  uint32_t plain = 0;           // number of kept plain values
  uint32_t recalled = 0;        // number of values taken from the memo
  PickleId lowest = kNoPickle;  // lowest value to which something was added since the mark
};

// A memo entry. If the value was dropped, its id may be reused: the offset detects that.
struct PickleMemo {
  PickleId id = kNoPickle;
  uint32_t offset = 0;
};

// A text with more bytes than this cannot be the bytes of a number.
inline constexpr size_t kMostOfScalar = 256;

// Reads one pickle. Each step returns false if the pickle is refused; `problem` has the reason.
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
  // Returns the next bytes; nothing if there are fewer.
  std::optional<std::string_view> Take(uint64_t size, const char* what);
  // Reads up to the next line feed, and returns the line without it.
  std::optional<std::string_view> Line(const char* what);
  // Reads a little-endian number of `width` bytes.
  std::optional<uint64_t> Number(size_t width, const char* what);
  // Reads a length of `width` bytes, then that many bytes.
  std::optional<std::string_view> Counted(size_t width, const char* what);

  // ---- the stack
  bool Push(PickleId id);
  std::optional<PickleId> Pop();
  // Returns the value on top without removing it; nothing if there is none since the last mark.
  std::optional<PickleId> Top();
  bool PushMark();
  PickleMark PopMark();  // requires a mark
  // Takes the values since the last mark. If `mark` is given, stores the mark there.
  std::optional<std::vector<PickleId>> PopToMark(PickleMark* mark = nullptr);
  bool Remember(uint64_t place);
  bool Recall(uint64_t place);
  bool RecallDropped(PickleMemo* memo);

  // ---- values (build.cc); each pushes its value
  PickleId New(PickleKind kind);
  bool PushNew(PickleKind kind);
  bool PushWhole(int64_t value);
  bool PushReal(double value);
  bool PushSpan(PickleKind kind, std::string_view text);    // pushes a part of the pickle's bytes
  bool PushOwned(PickleKind kind, std::string_view text);   // pushes a copy of `text`
  bool PushOldString(std::string_view text, bool in_data);  // pushes a string of Python 2
  bool PushLong(std::string_view bytes);                    // pushes an integer in two's complement
  bool PushDecimal(std::optional<std::string_view> line, bool truth);
  bool PushItems(PickleKind kind, std::vector<PickleId> items);
  bool PushTuple(size_t size);
  bool PushGlobal(std::string_view module, std::string_view name);
  bool PushPersistent(PickleId id);
  bool PushCall(PickleId callee, PickleId arguments, PickleId keywords = kNoPickle);
  bool StackGlobal();

  // ---- adding to values (build.cc)
  bool Extend(std::optional<std::vector<PickleId>> items, PickleKind kind);
  bool ExtendAll(PickleKind kind);  // adds the values after the last mark
  // Returns the list, set or dict to which items are added. If the value is not of this kind,
  // returns nothing.
  std::optional<PickleId> Container(PickleId target, PickleKind kind);
  bool Build();
  bool Grow(std::vector<PickleId>* items, const std::vector<PickleId>& more);

  // ---- plain values beyond the limit (runs.cc)
  // Returns true if all values made since the mark are plain, and no other value refers to them.
  bool IsPlainSince(const PickleMark& mark) const;
  // Returns true if the value on top is a list that the limits name.
  bool IsKeptWhole() const;
  // Counts the values as kept. Returns false if they exceed the limit and must be dropped.
  bool KeepPlain(const PickleMark& mark);
  // Drops the values. A run represents them in `target`, if there are any.
  bool Drop(const PickleMark& mark, uint64_t items, PickleId target, PickleKind kind);
  bool AddRun(PickleId container, PickleKind kind, const PickleRun& run);
  bool IsNumpyScalar(PickleId callee) const;
  // Records that items are added to this value.
  void Touch(PickleId target);

  // ---- calls (calls.cc)
  bool Reduce();
  bool NewObject(bool with_keywords);
  bool Instance();
  bool Object();
  bool Call(PickleId callee, PickleId arguments);
  // Pushes the result of a call of one of Python's plain types. For any other call, returns
  // nothing.
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
  size_t op_at_ = 0;  // offset of the current opcode
  bool stopped_ = false;
  size_t items_ = 0;  // number of items in all containers
  std::vector<PickleId> stack_;
  std::vector<PickleMark> marks_;
  // Entries with consecutive numbers, as picklers write them.
  std::deque<PickleMemo> memo_;
  absl::flat_hash_map<uint64_t, PickleMemo> far_memo_;  // entries with other numbers
  PickleId special_ = 0;   // the last value that is not plain: a name, a call, a persistent id
  uint32_t plain_ = 0;     // plain values kept in long containers
  uint32_t recalled_ = 0;  // number of values taken from the memo
  absl::flat_hash_map<std::string, PickleId> globals_;
  PickleId none_ = 0, true_ = 0, false_ = 0;
};

// If a dict got a key twice, keeps the first place and the last value, as Python does.
void KeepLastOfKeys(PickleTree* tree);

// Cuts cycles that lead through a call. Refuses cycles of plain containers alone, and values that
// are deeper or, unfolded, larger than the limits.
std::optional<Problem> CheckPickle(PickleTree* tree, const PickleLimits& limits);

}  // namespace plumbline::audit
