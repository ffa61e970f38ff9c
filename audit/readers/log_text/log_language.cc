#include "audit/readers/log_text/log_language.h"

#include <algorithm>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

struct ForeignWord {
  enum Kind { kCount, kLossWord, kOther };
  std::string_view foreign, english;
  Kind kind;
};
// Sorted by length, longest words first.
constexpr ForeignWord kForeignWords[] = {
    {"pérdida de entrenamiento", "train loss", ForeignWord::kLossWord},
    {"Pérdida de entrenamiento", "train loss", ForeignWord::kLossWord},
    {"perdita di addestramento", "train loss", ForeignWord::kLossWord},
    {"Perdita di addestramento", "train loss", ForeignWord::kLossWord},
    {"pérdida de validación", "val loss", ForeignWord::kLossWord},
    {"Pérdida de validación", "val loss", ForeignWord::kLossWord},
    {"perdita di validazione", "val loss", ForeignWord::kLossWord},
    {"Perdita di validazione", "val loss", ForeignWord::kLossWord},
    {"perte d'entraînement", "train loss", ForeignWord::kLossWord},
    {"Perte d'entraînement", "train loss", ForeignWord::kLossWord},
    {"perda de treinamento", "train loss", ForeignWord::kLossWord},
    {"Perda de treinamento", "train loss", ForeignWord::kLossWord},
    {"perte de validation", "val loss", ForeignWord::kLossWord},
    {"Perte de validation", "val loss", ForeignWord::kLossWord},
    {"perda de validação", "val loss", ForeignWord::kLossWord},
    {"Perda de validação", "val loss", ForeignWord::kLossWord},
    {"taxa de aprendizado", "lr", ForeignWord::kOther},
    {"Taxa de aprendizado", "lr", ForeignWord::kOther},
    {"perda de treino", "train loss", ForeignWord::kLossWord},
    {"Perda de treino", "train loss", ForeignWord::kLossWord},
    {"скорость обучения", "lr", ForeignWord::kOther},
    {"taux d'apprentissage", "lr", ForeignWord::kOther},
    {"Taux d'apprentissage", "lr", ForeignWord::kOther},
    {"tasa de aprendizaje", "lr", ForeignWord::kOther},
    {"Tasa de aprendizaje", "lr", ForeignWord::kOther},
    {"Validierungsverlust", "val loss", ForeignWord::kLossWord},
    {"итерация", "iteration", ForeignWord::kCount},
    {"Итерация", "iteration", ForeignWord::kCount},
    {"точность", "accuracy", ForeignWord::kOther},
    {"Точность", "accuracy", ForeignWord::kOther},
    {"Trainingsverlust", "train loss", ForeignWord::kLossWord},
    {"ステップ", "step", ForeignWord::kCount},
    {"迭代次数", "iteration", ForeignWord::kCount},
    {"エポック", "epoch", ForeignWord::kCount},
    {"потери", "loss", ForeignWord::kLossWord},
    {"Потери", "loss", ForeignWord::kLossWord},
    {"потеря", "loss", ForeignWord::kLossWord},
    {"Потеря", "loss", ForeignWord::kLossWord},
    {"训练损失", "train loss", ForeignWord::kLossWord},
    {"訓練損失", "train loss", ForeignWord::kLossWord},
    {"验证损失", "val loss", ForeignWord::kLossWord},
    {"検証損失", "val loss", ForeignWord::kLossWord},
    {"Genauigkeit", "accuracy", ForeignWord::kOther},
    {"genauigkeit", "accuracy", ForeignWord::kOther},
    {"itération", "iteration", ForeignWord::kCount},
    {"Itération", "iteration", ForeignWord::kCount},
    {"iteración", "iteration", ForeignWord::kCount},
    {"Iteración", "iteration", ForeignWord::kCount},
    {"эпоха", "epoch", ForeignWord::kCount},
    {"Эпоха", "epoch", ForeignWord::kCount},
    {"précision", "accuracy", ForeignWord::kOther},
    {"Précision", "accuracy", ForeignWord::kOther},
    {"precisión", "accuracy", ForeignWord::kOther},
    {"Precisión", "accuracy", ForeignWord::kOther},
    {"损失值", "loss", ForeignWord::kLossWord},
    {"学习率", "lr", ForeignWord::kOther},
    {"学習率", "lr", ForeignWord::kOther},
    {"准确率", "accuracy", ForeignWord::kOther},
    {"pérdida", "loss", ForeignWord::kLossWord},
    {"Pérdida", "loss", ForeignWord::kLossWord},
    {"Lernrate", "lr", ForeignWord::kOther},
    {"lernrate", "lr", ForeignWord::kOther},
    {"Schritt", "step", ForeignWord::kCount},
    {"schritt", "step", ForeignWord::kCount},
    {"époque", "epoch", ForeignWord::kCount},
    {"Époque", "epoch", ForeignWord::kCount},
    {"Verlust", "loss", ForeignWord::kLossWord},
    {"verlust", "loss", ForeignWord::kLossWord},
    {"étape", "step", ForeignWord::kCount},
    {"Étape", "step", ForeignWord::kCount},
    {"шаг", "step", ForeignWord::kCount},
    {"Шаг", "step", ForeignWord::kCount},
    {"步数", "step", ForeignWord::kCount},
    {"步骤", "step", ForeignWord::kCount},
    {"迭代", "iteration", ForeignWord::kCount},
    {"反復", "iteration", ForeignWord::kCount},
    {"Epoche", "epoch", ForeignWord::kCount},
    {"epoche", "epoch", ForeignWord::kCount},
    {"época", "epoch", ForeignWord::kCount},
    {"Época", "epoch", ForeignWord::kCount},
    {"轮次", "epoch", ForeignWord::kCount},
    {"损失", "loss", ForeignWord::kLossWord},
    {"損失", "loss", ForeignWord::kLossWord},
    {"精度", "accuracy", ForeignWord::kOther},
    {"perdita", "loss", ForeignWord::kLossWord},
    {"Perdita", "loss", ForeignWord::kLossWord},
    {"perda", "loss", ForeignWord::kLossWord},
    {"Perda", "loss", ForeignWord::kLossWord},
    {"passo", "step", ForeignWord::kCount},
    {"Passo", "step", ForeignWord::kCount},
    {"epoca", "epoch", ForeignWord::kCount},
    {"Epoca", "epoch", ForeignWord::kCount},
    {"Etape", "step", ForeignWord::kCount},
    {"perte", "loss", ForeignWord::kLossWord},
    {"Perte", "loss", ForeignWord::kLossWord},
    {"paso", "step", ForeignWord::kCount},
    {"Paso", "step", ForeignWord::kCount},
};

struct ForeignSign {
  std::string_view foreign, english;
};
// Signs of Chinese counts, in which the word follows the number.
constexpr ForeignSign kAfterNumber[] = {
    {"步", "step "}, {"轮", "epoch "}, {"次迭代", "iteration "}, {"个epoch", "epoch "}};

bool IsForeignLetter(char c) { return IsPairLetter(c) || static_cast<unsigned char>(c) >= 0x80; }

// In languages with spaces, returns true if the word at `at` is not part of a longer word.
bool StandsAlone(std::string_view line, size_t at, const ForeignWord& word) {
  const bool spaced = static_cast<unsigned char>(word.foreign[0]) < 0xE0;
  const size_t end = at + word.foreign.size();
  return !spaced || ((at == 0 || !IsForeignLetter(line[at - 1])) &&
                     (end >= line.size() || !IsForeignLetter(line[end])));
}

const ForeignWord* ForeignWordAt(std::string_view line, size_t at) {
  static constexpr Bytes kAscii("SEVPTLGsevptlg");
  if (static_cast<unsigned char>(line[at]) < 0x80 && !kAscii[line[at]]) return nullptr;
  const char first = line[at];
  const auto* found = std::find_if(
      std::begin(kForeignWords), std::end(kForeignWords), [&](const ForeignWord& word) {
        return word.foreign[0] == first && line.substr(at).starts_with(word.foreign) &&
               StandsAlone(line, at, word);
      });
  return found == std::end(kForeignWords) ? nullptr : found;
}

// Appends "step 10" for "第10步" at `at`. Returns its end, or `at` if there is none.
size_t TakeCount(std::string_view line, size_t at, std::string* out) {
  constexpr std::string_view kOrdinal = "第";
  if (line.substr(at, kOrdinal.size()) != kOrdinal) return at;
  const size_t begin = PassBlanks(line, at + kOrdinal.size());
  size_t end = begin;
  while (end < line.size() && (IsPairDigit(line[end]) || line[end] == '/')) ++end;
  const size_t word = PassBlanks(line, end);
  if (end == begin || word >= line.size()) return at;
  for (const ForeignSign& sign : kAfterNumber) {
    if (!line.substr(word).starts_with(sign.foreign)) continue;
    out->append(sign.english).append(line.substr(begin, end - begin));
    return word + sign.foreign.size();
  }
  return at;
}

}  // namespace

std::string_view WithEnglishWords(std::string_view line, std::string* scratch) {
  scratch->clear();
  for (size_t at = 0; at < line.size();) {
    if (const size_t end = TakeCount(line, at, scratch); end != at) {
      at = end;
      continue;
    }
    if (const ForeignWord* word = ForeignWordAt(line, at)) {
      scratch->append(word->english);
      at += word->foreign.size();
      continue;
    }
    scratch->push_back(line[at++]);
  }
  return *scratch;
}

bool HasForeignWords(std::string_view text) {
  constexpr int kFewest = 2;  // number of lines
  constexpr size_t kLongest = 512;
  int lines = 0;
  std::string scratch;
  while (!text.empty() && lines < kFewest) {
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    bool count = false, loss = false, digit = false;
    for (size_t at = 0; at < std::min(line.size(), kLongest); ++at) {
      digit |= IsPairDigit(line[at]);
      const ForeignWord* word = ForeignWordAt(line, at);
      if (word == nullptr) {
        scratch.clear();
        count |= TakeCount(line, at, &scratch) != at;
        continue;
      }
      count |= word->kind == ForeignWord::kCount;
      loss |= word->kind == ForeignWord::kLossWord;
    }
    lines += count && loss && digit ? 1 : 0;
  }
  return lines >= kFewest;
}

}  // namespace plumbline::audit
