// Finds counts without a word: at the beginning of a line, at its end, or a ratio anywhere. A weak
// count (LogMark::weak) marks a line only if the line has a series of training. Pure functions;
// thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "audit/readers/log_text/log_words.h"

namespace plumbline::audit {

// Finds "[12]\ttrain-rmse:0.5" (XGBoost, LightGBM; a time may precede it), "12:\tlearn: 0.5"
// (CatBoost), "[3/25][50/1583]", "[1,  2000]", "[100/3000] loss: 2.5", "[3: 10/200] loss: 2.5",
// "[100 | 12.3] loss=2.5", "#100 loss: 2.5", "100) loss = 2.5", "3 100 loss - 2.5", "100/
// 2000: 2.5".
std::optional<LogMark> LeadingCount(std::string_view text);
// Finds "loss: 2.30  [ 6400/60000]".
std::optional<LogMark> TrailingCount(std::string_view text);
// Finds "... data=0010/0120 loss=2.5", "(12 of 120) ... loss: 2.5". The mark is weak.
std::optional<LogMark> RatioAnywhere(std::string_view text);
// Finds "Loss after 100 steps: 2.5", "After 100 iterations, loss is 2.5".
std::optional<LogMark> CountAfterWord(std::string_view text);
// Finds "Train loss 10 2.5 Grad Norm 0.5" (Tacotron 2), which is the name, the step, the value.
std::optional<LogMark> CountAfterName(std::string_view text);
// Finds "INFO:rvc:[200, 0.0001]" (VITS), which has only the step and the rate of the line below.
std::optional<LogMark> ListOfStep(std::string_view text);
// Finds "INFO\t[2.1, 0.53, 3.9, 3400, 9.99e-05]" (GPT-SoVITS, VITS): values without names, the step
// and the rate. Sets LogMark::unnamed.
std::optional<LogMark> UnnamedList(std::string_view text);

}  // namespace plumbline::audit
