#include "audit/readers/pickle/machine.h"

#include <bit>
#include <cstdlib>
#include <utility>

#include "audit/readers/pickle/machine_state.h"
#include "audit/readers/pickle/text.h"

namespace plumbline::audit {

PickleMachine::PickleMachine(std::string_view data, const PickleLimits& limits, PickleTree* tree)
    : data_(data), limits_(limits), tree_(*tree) {
  tree_.data_ = data;
  none_ = New(PickleKind::kNone);
  true_ = New(PickleKind::kBool);
  tree_.nodes_[true_].whole = 1;
  false_ = New(PickleKind::kBool);
}

bool PickleMachine::Run() {
  if (data_.size() > limits_.bytes) {
    return Fail("expected a pickle of at most " + std::to_string(limits_.bytes) + " bytes, found " +
                std::to_string(data_.size()));
  }
  while (!stopped_) {
    op_at_ = at_;
    if (at_ == data_.size()) return Fail("expected an opcode or STOP, found the end of the pickle");
    const auto op = static_cast<PickleOp>(static_cast<unsigned char>(data_[at_++]));
    if (!Step(op)) return false;
  }
  return true;
}

// Executes an opcode of protocol 2 or newer, or one that all protocols have.
bool PickleMachine::Step(PickleOp op) {
  switch (op) {
    case PickleOp::kProto: {
      const auto version = Number(1, "a protocol");
      if (!version) return false;
      return *version <= 5 ||
             Fail("expected a protocol of 0 to 5, found " + std::to_string(*version));
    }
    case PickleOp::kFrame: {
      const auto length = Number(8, "the length of a frame");
      if (!length) return false;
      return *length <= data_.size() - at_ ||
             Fail("expected a frame of " + std::to_string(*length) + " bytes, found " +
                  std::to_string(data_.size() - at_) + " to the end of the pickle");
    }
    case PickleOp::kStop: {
      const auto root = Pop();
      if (!root) return false;
      tree_.root_ = *root;
      stopped_ = true;
      return true;
    }
    case PickleOp::kMark:
      return PushMark();
    case PickleOp::kNone:
      return Push(none_);
    case PickleOp::kNewTrue:
      return Push(true_);
    case PickleOp::kNewFalse:
      return Push(false_);
    case PickleOp::kBinInt: {
      const auto value = Number(4, "a whole number");
      return value && PushWhole(static_cast<int32_t>(static_cast<uint32_t>(*value)));
    }
    case PickleOp::kBinInt1:
    case PickleOp::kBinInt2: {
      const auto value = Number(op == PickleOp::kBinInt1 ? 1 : 2, "a whole number");
      return value && PushWhole(static_cast<int64_t>(*value));
    }
    case PickleOp::kLong1:
    case PickleOp::kLong4: {
      const auto bytes = Counted(op == PickleOp::kLong1 ? 1 : 4, "a whole number");
      return bytes && PushLong(*bytes);
    }
    case PickleOp::kBinFloat: {
      const auto bits = Number(8, "a number");
      return bits && PushReal(std::bit_cast<double>(__builtin_bswap64(*bits)));
    }
    case PickleOp::kShortBinUnicode:
    case PickleOp::kBinUnicode:
    case PickleOp::kBinUnicode8: {
      const size_t width = op == PickleOp::kBinUnicode8 ? 8 : op == PickleOp::kBinUnicode ? 4 : 1;
      const auto text = Counted(width, "a text");
      return text && PushSpan(PickleKind::kText, *text);
    }
    case PickleOp::kShortBinBytes:
    case PickleOp::kBinBytes:
    case PickleOp::kBinBytes8:
    case PickleOp::kByteArray8: {
      const size_t width = op == PickleOp::kShortBinBytes ? 1 : op == PickleOp::kBinBytes ? 4 : 8;
      const auto bytes = Counted(width, "bytes");
      return bytes && PushSpan(PickleKind::kBytes, *bytes) &&
             SetVariant(op == PickleOp::kByteArray8);
    }
    case PickleOp::kEmptyList:
      return PushNew(PickleKind::kList);
    case PickleOp::kEmptyTuple:
      return PushNew(PickleKind::kTuple);
    case PickleOp::kEmptyDict:
      return PushNew(PickleKind::kDict);
    case PickleOp::kEmptySet:
      return PushNew(PickleKind::kSet);
    case PickleOp::kTuple1:
      return PushTuple(1);
    case PickleOp::kTuple2:
      return PushTuple(2);
    case PickleOp::kTuple3:
      return PushTuple(3);
    case PickleOp::kTuple:
    case PickleOp::kList:
    case PickleOp::kFrozenSet: {
      auto items = PopToMark();
      return items &&
             PushItems(op == PickleOp::kTuple  ? PickleKind::kTuple
                       : op == PickleOp::kList ? PickleKind::kList
                                               : PickleKind::kSet,
                       *std::move(items)) &&
             SetVariant(op == PickleOp::kFrozenSet);
    }
    case PickleOp::kAppends:
      return ExtendAll(PickleKind::kList);
    case PickleOp::kAddItems:
      return ExtendAll(PickleKind::kSet);
    case PickleOp::kSetItems:
      return ExtendAll(PickleKind::kDict);
    default:
      return StepOther(op);
  }
}

bool PickleMachine::StepOther(PickleOp op) {
  switch (op) {
    case PickleOp::kMemoize:
      return Remember(memo_.size() + far_memo_.size());
    case PickleOp::kBinPut:
    case PickleOp::kLongBinPut: {
      const auto place = Number(op == PickleOp::kBinPut ? 1 : 4, "an index of the memo");
      return place && Remember(*place);
    }
    case PickleOp::kBinGet:
    case PickleOp::kLongBinGet: {
      const auto place = Number(op == PickleOp::kBinGet ? 1 : 4, "an index of the memo");
      return place && Recall(*place);
    }
    case PickleOp::kPut:
    case PickleOp::kGet: {
      const auto line = Line("an index of the memo");
      std::optional<int64_t> place;
      std::string large;
      if (!line) return false;
      if (!ParseWhole(*line, &place, &large) || !place || *place < 0)
        return Fail("expected an index of the memo in decimal");
      const auto at = static_cast<uint64_t>(*place);
      return op == PickleOp::kPut ? Remember(at) : Recall(at);
    }
    case PickleOp::kInt:
      return PushDecimal(Line("a whole number"), true);
    case PickleOp::kLong:
      return PushDecimal(Line("a whole number"), false);
    case PickleOp::kFloat: {
      const auto line = Line("a number");
      if (!line) return false;
      const auto value = ParseReal(*line);
      return value ? PushReal(*value) : Fail("expected a number in decimal");
    }
    case PickleOp::kString: {
      const auto line = Line("a string");
      if (!line) return false;
      const size_t n = line->size();
      if (n < 2 || (line->front() != '\'' && line->front() != '"') || line->back() != line->front())
        return Fail("expected a string in quotes");
      const auto text = UnescapeBytes(line->substr(1, n - 2));
      return text ? PushOldString(*text, false) : Fail("expected a whole escape in a string");
    }
    case PickleOp::kBinString:
    case PickleOp::kShortBinString: {
      const auto text = Counted(op == PickleOp::kBinString ? 4 : 1, "a string");
      return text && PushOldString(*text, true);
    }
    case PickleOp::kUnicode: {
      const auto line = Line("a text");
      if (!line) return false;
      const auto text = UnescapeUnicode(*line);
      return text ? PushOwned(PickleKind::kText, *text) : Fail("expected a whole escape in a text");
    }
    case PickleOp::kPersId: {
      const auto line = Line("a persistent id");
      if (!line || !PushSpan(PickleKind::kText, *line)) return false;
      return PushPersistent(*Pop());
    }
    case PickleOp::kBinPersId: {
      const auto id = Pop();
      return id && PushPersistent(*id);
    }
    case PickleOp::kPop:
      // Here a mark is handled like a value.
      if (!marks_.empty() && marks_.back().height == stack_.size()) {
        PopMark();
        return true;
      }
      return Pop().has_value();
    case PickleOp::kPopMark:
      return PopToMark().has_value();
    case PickleOp::kDup: {
      const auto top = Top();
      return top && Push(*top);
    }
    case PickleOp::kDict: {
      auto items = PopToMark();
      if (!items) return false;
      if (items->size() % 2 != 0) return Fail("expected a value for each key of a dict");
      return PushItems(PickleKind::kDict, *std::move(items));
    }
    case PickleOp::kAppend: {
      const auto item = Pop();
      return item && Extend(std::vector<PickleId>{*item}, PickleKind::kList);
    }
    case PickleOp::kSetItem: {
      const auto value = Pop();
      const auto key = value ? Pop() : std::nullopt;
      return key && Extend(std::vector<PickleId>{*key, *value}, PickleKind::kDict);
    }
    case PickleOp::kGlobal: {
      const auto module = Line("a module");
      const auto name = module ? Line("a name in a module") : std::nullopt;
      return name && PushGlobal(*module, *name);
    }
    case PickleOp::kStackGlobal:
      return StackGlobal();
    case PickleOp::kReduce:
      return Reduce();
    case PickleOp::kBuild:
      return Build();
    case PickleOp::kInst:
      return Instance();
    case PickleOp::kObj:
      return Object();
    case PickleOp::kNewObj:
      return NewObject(false);
    case PickleOp::kNewObjEx:
      return NewObject(true);
    case PickleOp::kExt1:
    case PickleOp::kExt2:
    case PickleOp::kExt4:
      return Fail("expected a value, found a code of the writer's extension registry (EXT)");
    case PickleOp::kNextBuffer:
    case PickleOp::kReadOnlyBuffer:
      return Fail("expected a value, found a buffer outside the pickle (protocol 5)");
    default:
      return Fail("expected an opcode of the protocols 0 to 5, found byte " +
                  std::to_string(static_cast<int>(op)));
  }
}

std::optional<Problem> ParsePickle(std::string_view data, PickleTree* tree, size_t* used,
                                   const PickleLimits& limits) {
  *tree = {};
  PickleMachine machine(data, limits, tree);
  const bool whole = machine.Run();
  if (used != nullptr) *used = machine.used();
  if (!whole) return machine.problem;
  KeepLastOfKeys(tree);
  return CheckPickle(tree, limits);
}

}  // namespace plumbline::audit
