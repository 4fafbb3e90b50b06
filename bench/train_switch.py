#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains tiny Switch Transformers on span corruption, on a CPU, for recording their routing.

    train_switch.py TEXTS_FOLDER OUT_FOLDER --experts 8 16 32 64 128 --minutes M [--start FOLDER]

--start begins with the weights of a folder made here; its experts are copied (with noise) until
there are enough. The first 60 % of the time half of the tokens are corrupted, then 15 %.

OUT_FOLDER gets, for each number of experts E, switch-E{E} as Hugging Face has such folders
(config.json, model.safetensors in F32, spiece.model, tokenizer_config.json) and stats-E{E}.json,
what is printed about it; and heldout.txt, the last 10 % of the lines of each text of
TEXTS_FOLDER/*.txt, which no model and no tokenizer was trained on.

M is in minutes of processor time for each E, statistics not counted. Set OMP_NUM_THREADS=1
(one thread), MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=8000000000 (fewer page faults, faster).
Needs transformers, torch, safetensors and sentencepiece. Made with Debian's transformers 5.12.1,
torch 2.14.1, sentencepiece 0.2.2.

Differences from transformers 5.12 while training: all layers of a stack share the position bias
of layer 0, as T5's do (5.12 gives it to layer 0 alone); experts are computed together (equal but
faster, products in BF16 where torch allows it); the losses of the routers are those of the Switch
paper, for each sparse layer (5.12 computes them from other tensors). No capacity is applied.
"""

import argparse
import json
import math
import pathlib
import random
import shutil
import time

import sentencepiece
import torch
import torch.nn.functional as F
from transformers import (SwitchTransformersConfig, SwitchTransformersForConditionalGeneration,
                          T5Tokenizer)

PIECES = 2000
SENTINELS = 100
ROWS = 2176  # of the embedding: a multiple of 128, as T5's
WINDOWS = (128, 128, 112, 96, 64, 48, 32)  # tokens of text, drawn for each batch
BATCH = 16
NOISE = 0.15
MORE_NOISE = 0.5  # at first: three times as many tokens to learn from in a step
MORE_NOISE_UNTIL = 0.6  # of the time
SPAN = 3
END_OF_STORY = "<|endoftext|>"
RATE = 2e-3
EMBEDDING_RATE = 5e-3
ROUTER_RATE = 1.5e-3  # slower, or the balance loss makes all experts alike
EMBEDDING_SPREAD = 0.5
BRANCH_SCALE = 0.15  # of what layers add at first, or 24 of them drown the tokens
ROUTER_SPREAD = 0.4  # standard deviation of a router's first weights
COPY_ROUTER_SPREAD = 0.3  # what the routers' rows of one expert's copies differ by
COPY_SPREAD = 0.02  # and their matrices
TABLE_BATCHES = 80  # of the training text, for the tables that predict experts
HELDOUT_BATCHES = 40


def read_texts(folder):
    """Lines of the stories: those to train on and those held out."""
    train, heldout = [], []
    for path in sorted(folder.glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        cut = len(lines) * 9 // 10
        for part, into in ((lines[:cut], train), (lines[cut:], heldout)):
            into += [line.strip() for line in part if line.strip() and line != END_OF_STORY]
    return train, heldout


def tokenizer_file(lines, out):
    """Trains spiece.model with T5's special tokens."""
    text = out / "train.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(out / "spiece"), vocab_size=PIECES,
        model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.9995,
        num_threads=1, minloglevel=2)
    text.unlink()
    (out / "spiece.vocab").unlink()
    return out / "spiece.model"


class Text:
    """Tokens of lines, and batches of corrupted windows of them."""

    def __init__(self, lines, spiece, seed):
        self.ids, self.starts = [], []
        for line in spiece.encode(lines):
            self.starts.append(len(self.ids))
            self.ids += line
        self.starts = [s for s in self.starts if s + max(WINDOWS) <= len(self.ids)]
        self.random = random.Random(seed)
        self.noise = NOISE

    def parts(self, total, count):
        """`total` as a random sum of `count` numbers of at least 1."""
        cuts = sorted(self.random.sample(range(1, total), count - 1))
        return [b - a for a, b in zip([0] + cuts, cuts + [total])]

    def corrupted(self, ids):
        """What the encoder reads and the decoder is to write; lengths depend on len(ids) alone."""
        noise = max(round(len(ids) * self.noise), 1)
        spans = max(round(noise / SPAN), 1)
        source, target, at = [], [], 0
        kept = self.parts(len(ids) - noise, spans + 1)
        for n, (keep, drop) in enumerate(zip(kept, self.parts(noise, spans))):
            sentinel = PIECES + SENTINELS - 1 - n
            source += ids[at:at + keep] + [sentinel]
            target += [sentinel] + ids[at + keep:at + keep + drop]
            at += keep + drop
        return source + ids[at:] + [1], target + [PIECES + SENTINELS - 1 - spans, 1]

    def batch(self):
        length = self.random.choice(WINDOWS)
        starts = self.random.choices(self.starts, k=BATCH)
        pairs = [self.corrupted(self.ids[s:s + length]) for s in starts]
        return torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])


class ExactProduct(torch.autograd.Function):
    """x @ w.T in F32, also where torch may compute products of F32 in BF16."""

    @staticmethod
    def exactly(function, *args):
        was = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        result = function(*args)
        torch.set_float32_matmul_precision(was)
        return result

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return ExactProduct.exactly(lambda: x @ w.T)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return ExactProduct.exactly(lambda: (grad @ w, grad.T @ x))


class FastSparse(torch.nn.Module):
    """SwitchTransformersSparseMLP with the experts' matrices stacked; keeps what it routed."""

    def __init__(self, config):
        super().__init__()
        d, f, n = config.d_model, config.d_ff, config.num_experts
        self.router = torch.nn.Parameter(torch.randn(n, d) * ROUTER_SPREAD)
        self.wi = torch.nn.Parameter(torch.randn(n, d, f) * d ** -0.5)
        self.wo = torch.nn.Parameter(torch.randn(n, f, d) * f ** -0.5 * BRANCH_SCALE)

    def experts(self, x, expert, counts):
        """x is sorted by expert. Padded products if that is not too much padding."""
        most = int(counts.max())
        if len(counts) * most > 4 * len(x):
            ends = counts.cumsum(0).int()
            return F.grouped_mm(F.grouped_mm(x, self.wi, offs=ends).relu(), self.wo, offs=ends)
        first = counts.cumsum(0) - counts
        slot = expert * most + torch.arange(len(x)) - first[expert]
        padded = x.new_zeros(len(counts) * most, x.shape[1]).index_copy(0, slot, x)
        padded = padded.view(len(counts), most, -1)
        return torch.bmm(torch.bmm(padded, self.wi).relu(), self.wo).flatten(0, 1)[slot]

    def forward(self, hidden):
        x = hidden.reshape(-1, hidden.shape[-1])
        logits = ExactProduct.apply(x, self.router)
        probabilities = logits.softmax(-1)
        gate, expert = probabilities.max(-1)
        counts = torch.bincount(expert, minlength=len(self.router))
        self.balance = (counts / len(x) * probabilities.mean(0)).sum() * len(counts)
        self.z = logits.logsumexp(-1).square().mean()
        self.gate, self.expert = gate.detach(), expert.detach()
        order = expert.argsort(stable=True)
        made = self.experts(x[order], expert[order], counts)
        made = torch.zeros_like(x).index_copy(0, order, made) * gate[:, None]
        return made.view_as(hidden)


def share_bias(model):
    """All layers of a stack see the (masked) position bias of layer 0."""
    for stack in (model.encoder, model.decoder):
        made = {}

        def keep(module, args, result, made=made):
            made["bias"] = result[1]

        def give(module, args, kwargs, made=made):
            return args, {**kwargs, "position_bias": made["bias"]}

        stack.block[0].layer[0].SelfAttention.register_forward_hook(keep)
        for block in stack.block[1:]:
            block.layer[0].SelfAttention.register_forward_pre_hook(give, with_kwargs=True)


def config_of(experts, aux):
    return SwitchTransformersConfig(
        vocab_size=ROWS, d_model=64, d_kv=16, d_ff=128, num_heads=4, num_layers=12,
        num_decoder_layers=12, num_sparse_encoder_layers=6, num_sparse_decoder_layers=6,
        num_experts=experts, expert_capacity=1024, router_jitter_noise=0.0, router_dtype="float32",
        router_z_loss_coef=0.001, router_aux_loss_coef=aux, dropout_rate=0.0,
        decoder_start_token_id=0, relative_attention_num_buckets=32,
        relative_attention_max_distance=128)


def new_model(config):
    """The model to train and its sparse blocks by their place in it."""
    small = SwitchTransformersConfig(**{**config.to_dict(), "num_experts": 1})
    model = SwitchTransformersForConditionalGeneration(small)
    model.set_input_embeddings(model.shared)
    share_bias(model)
    with torch.no_grad():
        model.shared.weight *= EMBEDDING_SPREAD
        for name, weight in model.named_parameters():
            if name.endswith((".o.weight", ".wo.weight")):
                weight *= BRANCH_SCALE
    sparse = {}
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for n, block in enumerate(stack.block):
            if block.is_sparse:
                at = len(block.layer) - 1
                block.layer[at].mlp = FastSparse(config)
                sparse[f"{name}.block.{n}.layer.{at}.mlp"] = block.layer[at].mlp
    return model, sparse


def plain_model(model, config, sparse):
    """The same weights as transformers has them."""
    made = SwitchTransformersForConditionalGeneration(config)
    made.set_input_embeddings(made.shared)
    weights = {name: value for name, value in model.state_dict().items()
               if not any(name.startswith(at + ".") for at in sparse)}
    for at, block in sparse.items():
        weights[f"{at}.router.classifier.weight"] = block.router
        for n in range(config.num_experts):
            weights[f"{at}.experts.expert_{n}.wi.weight"] = block.wi[n].T
            weights[f"{at}.experts.expert_{n}.wo.weight"] = block.wo[n].T
    made.load_state_dict({name: value.detach().clone() for name, value in weights.items()})
    return made.eval()


@torch.no_grad()
def start_from(model, sparse, folder):
    """Takes a trained model's weights; its experts are copied until there are enough."""
    given = SwitchTransformersForConditionalGeneration.from_pretrained(folder).state_dict()
    model.load_state_dict({name: given[name] for name in model.state_dict() if name in given},
                          strict=False)
    for at, block in sparse.items():
        router = given[f"{at}.router.classifier.weight"]
        copies = [n % len(router) for n in range(len(block.router))]
        spread = COPY_ROUTER_SPREAD if len(copies) > len(router) else 0
        block.router.copy_(router[copies] + torch.randn_like(block.router) * spread)
        for name, into in (("wi", block.wi), ("wo", block.wo)):
            stacked = torch.stack([given[f"{at}.experts.expert_{n}.{name}.weight"].T
                                   for n in range(len(router))])[copies]
            into.copy_(stacked + torch.randn_like(into) * (COPY_SPREAD if spread else 0))


def loss_of(model, source, target):
    return model(input_ids=source, labels=target, use_cache=False).loss


def train(model, config, sparse, text, minutes):
    """Returns the mean loss (cross entropy) of the last 50 steps, and the steps."""
    embedding = model.shared.weight
    routers = [block.router for block in sparse.values()]
    rest = [p for name, p in model.named_parameters()
            if p is not embedding and not name.endswith(".router")]
    groups = [{"params": [embedding], "lr": EMBEDDING_RATE, "most": EMBEDDING_RATE},
              {"params": routers, "lr": ROUTER_RATE, "most": ROUTER_RATE},
              {"params": rest, "lr": RATE, "most": RATE}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    losses, start = [], time.process_time()
    while (done := (time.process_time() - start) / (60 * minutes)) < 1:
        scale = min(1, (len(losses) + 1) / 60) * min(1, max(0.03, (1 - done) / 0.5))
        for group in optimizer.param_groups:
            group["lr"] = group["most"] * scale
        text.noise = MORE_NOISE if done < MORE_NOISE_UNTIL else NOISE
        loss = loss_of(model, *text.batch())
        # As in transformers: the mean over the layers of a stack, and the sum over the stacks.
        balance = sum(block.balance for block in sparse.values()) * 2 / len(sparse)
        z = sum(block.z for block in sparse.values()) * 2 / len(sparse)
        total = loss + config.router_aux_loss_coef * balance + config.router_z_loss_coef * z
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if len(losses) % 50 == 0:
            print(f"  step {len(losses)}, {time.process_time() - start:.0f} s: loss "
                  f"{sum(losses[-50:]) / 50:.3f}, balance {balance.item() / 2:.2f}, "
                  f"z {z.item() / 2:.2f}, probability "
                  f"{sum(float(b.gate.mean()) for b in sparse.values()) / len(sparse):.2f}",
                  flush=True)
    text.noise = NOISE
    last = losses[-50:]
    return sum(last) / len(last), len(losses)


@torch.no_grad()
def record(model, sparse, text, batches):
    """Loss, experts (sparse layers x tokens) and mean probabilities of each stack."""
    losses, experts, gates = [], {}, {}
    for _ in range(batches):
        losses.append(float(loss_of(model, *text.batch())))
        for stack in ("encoder", "decoder"):
            blocks = [b for at, b in sparse.items() if at.startswith(stack)]
            experts.setdefault(stack, []).append(torch.stack([b.expert for b in blocks]))
            gates.setdefault(stack, []).append(torch.stack([b.gate for b in blocks]))
    return (sum(losses) / len(losses), {s: torch.cat(e, 1) for s, e in experts.items()},
            {s: torch.cat(g, 1).mean(1).tolist() for s, g in gates.items()})


def table(keys, experts, n, rows):
    counts = torch.bincount(keys * n + experts, minlength=rows * n).view(rows, n)
    return counts.argmax(1), counts.sum(1) > 0


def predicted(train_experts, heldout_experts, layer, n):
    """Share of held-out tokens whose expert the two layers before foretell."""
    target, truth = train_experts[layer], heldout_experts[layer]
    guess = torch.bincount(target, minlength=n).argmax().expand(len(truth))
    for back in (1, 2):  # a pair never seen falls back to one layer, then to the most popular
        if layer < back:
            break
        keys = [sum(e[layer - 1 - b] * n ** b for b in range(back))
                for e in (train_experts, heldout_experts)]
        best, seen = table(keys[0], target, n, n ** back)
        guess = torch.where(seen[keys[1]], best[keys[1]], guess)
    return float((guess == truth).float().mean())


def routing(model, sparse, text, heldout, n):
    """Prints a line for each sparse layer; returns what it printed and the held-out loss."""
    _, seen, _ = record(model, sparse, text, TABLE_BATCHES)
    loss, experts, gates = record(model, sparse, heldout, HELDOUT_BATCHES)
    rows = []
    print(f"  held-out loss {loss:.3f}; of held-out tokens, by sparse layer: entropy of load (bits "
          f"of {math.log2(n):.0f}), largest share, probability, expert predicted, most popular")
    for stack in ("encoder", "decoder"):
        for layer, chosen in enumerate(experts[stack]):
            load = torch.bincount(chosen, minlength=n) / len(chosen)
            popular = int(torch.bincount(seen[stack][layer], minlength=n).argmax())
            row = {"stack": stack, "layer": layer,
                   "entropy": -float((load * load.clamp(min=1e-9).log2()).sum()),
                   "largest": float(load.max()), "used": int((load > 0).sum()),
                   "probability": gates[stack][layer],
                   "predicted": predicted(seen[stack], experts[stack], layer, n),
                   "popular": float((chosen == popular).float().mean())}
            rows.append(row)
            print(f"  {stack} {layer}: {row['entropy']:.2f} {row['largest']:.2f} "
                  f"{row['probability']:.2f} {row['predicted']:.2f} {row['popular']:.2f}",
                  flush=True)
    return loss, rows


@torch.no_grad()
def save(model, config, sparse, spiece, folder, heldout):
    """Writes the folder; returns how far its loss, read anew, is from the trained model's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plain = plain_model(model, config, sparse)
    plain.save_pretrained(folder)
    shutil.copy(spiece, folder / "spiece.model")
    tokenizer = T5Tokenizer.from_pretrained(folder, extra_ids=SENTINELS)
    tokenizer.save_pretrained(folder)
    (folder / "tokenizer.json").unlink(missing_ok=True)  # spiece.model has it all
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
        if path.suffix == ".json":
            path.write_text(path.read_text().rstrip() + "\n")
    again = SwitchTransformersForConditionalGeneration.from_pretrained(folder).eval()
    share_bias(again)
    batch = heldout.batch()
    return abs(float(loss_of(again, *batch)) - float(loss_of(model, *batch)))


def make(experts, args, lines, spiece):
    torch.manual_seed(experts)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spiece))
    text, heldout = (Text(part, pieces, experts) for part in lines)
    config = config_of(experts, args.aux)
    model, sparse = new_model(config)
    if args.start:
        start_from(model, sparse, args.start)
    print(f"E={experts}, aux {args.aux}: {len(text.ids)} tokens to train, {len(heldout.ids)} held "
          f"out, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    torch.set_float32_matmul_precision("medium")
    loss, steps = train(model.train(), config, sparse, text, args.minutes)
    torch.set_float32_matmul_precision("highest")
    model.eval()
    folder = args.out / f"switch-E{experts}"
    apart = save(model, config, sparse, spiece, folder, heldout)
    print(f"  {steps} steps, training loss {loss:.3f}; saved, {apart:.2g} from transformers")
    heldout_loss, rows = routing(model, sparse, text, heldout, experts)
    stats = {"experts": experts, "aux": args.aux, "start": str(args.start or ""),
             "steps": steps, "training_loss": loss, "heldout_loss": heldout_loss, "layers": rows}
    (args.out / f"stats-E{experts}.json").write_text(json.dumps(stats, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--aux", type=float, default=0.01, help="weight of the balance loss")
    parser.add_argument("--start", type=pathlib.Path, help="a folder made here, to start from")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = read_texts(args.texts)
    (args.out / "heldout.txt").write_text("\n".join(lines[1]) + "\n", encoding="utf-8")
    spiece = args.out / "spiece.model"
    if not spiece.exists():
        tokenizer_file(lines[0], args.out)
    for experts in args.experts:
        make(experts, args, lines, spiece)


if __name__ == "__main__":
    main()
