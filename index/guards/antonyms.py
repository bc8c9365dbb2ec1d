"""Opposites: on and off, increase and decrease, larger and smaller, legal and illegal."""

import re
from collections.abc import Iterator
from itertools import product

from index.guards.guard import Guard
from index.guards.stem import stem
from index.guards.text import Text
from index.guards.wordset import wordset

_GROUPS = """
on:off in:out into:out up:down over:under above:below from:to with:without inside:outside
upon:off through:around front:back top:bottom left:right north:south east:west
open:close,shut open:closed start,begin,launch:stop,end,finish,quit enter:exit,leave
enable,activate:disable,deactivate allow,permit:forbid,ban,block,prevent,deny
add,insert,include,append:remove,delete,exclude,subtract attach:detach
increase,raise,gain,grow,boost,improve:decrease,lower,reduce,lose,shrink,drop,worsen,decline
maximum,max:minimum,min maximize:minimize largest,biggest,large,big,huge:smallest,small,tiny,little
more:less,fewer most:least many:few much:little higher,high:lower,low
tall,taller,long,longer:short,shorter,brief,briefly,concise
wide:narrow thick:thin deep:shallow heavy:light fat:thin,slim
fast,quick,faster,quicker:slow,slower early,earlier:late,later old,older:new,newer,young,younger
good,better,best:bad,worse,worst right,correct:wrong,incorrect true:false real:fake
easy,easier,simple:hard,harder,difficult,complex cheap,cheaper,inexpensive:expensive,costly,dear
hot,warm:cold,cool wet:dry clean:dirty full:empty rich,wealthy:poor strong,stronger:weak,weaker
hard:soft rough:smooth sharp:blunt bright,light:dark loud:quiet,silent public:private
safe:dangerous,unsafe,risky healthy:sick,ill love,like:hate,dislike friend:enemy
happy,glad:sad,unhappy hero:villain win:lose success,succeed:failure,fail pass:fail
buy,purchase:sell lend:borrow give:take,receive,get send:receive import:export push:pull
upload:download input:output read:write encrypt:decrypt encode:decode
compress:decompress lock:unlock mount:unmount install:uninstall connect:disconnect login:logout
log:unlog subscribe:unsubscribe follow:unfollow accept:reject,refuse,decline agree:disagree
approve:reject accept:deny admit:deny remember:forget teach:learn ask:answer
arrive:leave,depart come:go arrival:departure ascend:descend
rise:fall,set alive:dead live:die birth:death born:die
male:female man:woman
boy:girl husband:wife father,dad:mother,mom,mum son:daughter brother:sister uncle:aunt king:queen
parent:child teacher:student employer:employee employ:dismiss hire:fire buyer:seller
doctor:patient landlord:tenant client:server debit:credit income:expense
profit:loss asset:liability advantage,benefit,pro:disadvantage,drawback,con positive:negative
plus:minus multiply:divide sum:difference before:after first:last past:future
ancient:modern day:night morning:evening summer:winter sunrise:sunset inhale:exhale
virtual:physical domestic:foreign internal:external local:remote major:minor senior:junior
theory:practice cause:effect question:answer solid:liquid liquid:gas acid:base raw:cooked
always:never often:rarely,seldom everyone,everybody,everything:nobody,nothing all:none
optimist:pessimist optimistic:pessimistic introvert:extrovert liberal:conservative
odd:even single:married,double singular:plural vertical:horizontal
active:passive absolute:relative optional:mandatory,required free:paid manual:automatic
synchronous:asynchronous static:dynamic stateful:stateless wired:wireless analog:digital
attack:defend war:peace victory:defeat guilty:innocent create,make,build:destroy,delete
save:spend,delete show:hide visible:hidden appear:disappear float:sink freeze:melt
brief,briefly,short,concise:detail,detailed,thorough,thoroughly,depth
beginner,novice:expert,advanced basic:advanced formal:informal,casual polite:rude,blunt
longest:shortest fastest:slowest cheapest:dearest earliest:latest newest,youngest:oldest
farthest,furthest:nearest,closest heaviest:lightest hottest,warmest:coldest,coolest
deepest:shallowest strongest:weakest hardest:easiest,softest richest:poorest tallest:shortest
长:短 高:低,矮 大:小 多:少 重:轻 热:冷 深:浅 宽:窄 强:弱 难:易 新:旧,老 早:晚 远:近 好:坏,差
进:出 上:下 前:后 开:关 增:减 加:减 生:死 胖:瘦 厚:薄 粗:细 干:湿 真:假 对:错 胜:负,败 赢:输 升:降
涨:跌 借:还 收:发,支 内:外 公:私 正:反,负 软:硬 亮:暗 浓:淡 松:紧 忙:闲 输入:输出
use,consume:produce moral:amoral
expand:contract lengthen:shorten widen:narrow strengthen:weaken tighten:loosen thaw:freeze
"""


def _pairs(pairs: str) -> tuple[tuple[str, str], ...]:
    return tuple((one, other) for one, _, other in (pair.partition(":") for pair in pairs.split()))


_PREFIXES = dict.fromkeys(wordset("un in im il ir dis non anti de mis"), 4) | {"a": 6}
"""And the least length of a word that each turns around: `a` those of the learned (`atypical`), and
not `round`, `cross`, `live`."""
_LEAST_ROOT = 3
_BEGINNINGS = _pairs(
    "hyper:hypo macro:micro inter:intra pre:post over:under endo:exo mono:poly homo:hetero in:ex"
    " im:ex intro:extro sub:super super:infra"
)
_ENDS = _pairs("at:it at:id it:id an:en an:yn en:yn er:e or:ee ful:less")
"""Of stems: nitrate and nitrite, butane and butene, payer and payee."""


def _opposites() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for pair in _GROUPS.split():
        left, _, right = pair.partition(":")
        for ones, others in zip(_forms(left), _forms(right), strict=True):
            for one, other in product(ones, others):
                if one != other:
                    table.setdefault(one, set()).add(other)
                    table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


def _forms(words: str) -> Iterator[list[str]]:
    """Stems of the words, of their comparatives and of their superlatives."""
    for ending in ("", "er", "est"):
        yield [stem(_compared(word, ending)) for word in words.split(",")]


def _compared(word: str, ending: str) -> str:
    if not ending or not word.isascii():
        return word
    if word.endswith("e"):
        return word + ending[1:]
    if word.endswith("y"):
        return word[:-1] + "i" + ending
    doubled = len(word) == 3 and word[1] in "aeiou" and word[2] not in "aeiouwxy"
    return word + (word[-1] if doubled else "") + ending


_NONE: frozenset[str] = frozenset()
_AT_MOST, _AT_LEAST = "at most", "at least"
_BOUNDS = (
    (
        _AT_MOST,
        re.compile(r"\b(?:up to|at (?:the )?most|(?:no|not) more than|or (?:less|fewer))\b"),
    ),
    (_AT_LEAST, re.compile(r"\b(?:at (?:the )?least|(?:no|not) less than|or more)\b")),
)
"""Phrases whose words say nothing alone."""
_OPPOSITES = _opposites() | {
    _AT_MOST: frozenset({_AT_LEAST, *map(stem, ("over", "above", "beyond", "more", "exceed"))}),
    _AT_LEAST: frozenset({_AT_MOST, *map(stem, ("under", "below", "less", "fewer"))}),
}


def _read(text: Text) -> frozenset[str]:
    said = " ".join(text.words)
    return frozenset(text.stems).union(name for name, phrase in _BOUNDS if phrase.search(said))


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    only_a, only_b = a - b, b - a
    for ones, others in ((only_a, only_b), (only_b, only_a)):
        if any(not _OPPOSITES.get(word, _NONE).isdisjoint(others) for word in ones):
            return "antonyms"
    turned = any(
        _prefixed(ones, others) or _turned(ones, others)
        for ones, others in ((only_a, only_b), (only_b, only_a))
    )
    return "antonyms" if turned else None


def _prefixed(words: frozenset[str], others: frozenset[str]) -> bool:
    """Whether one of `others` is one of `words` turned around by a prefix."""
    return any(
        len(word) >= least and word in words
        for other in others
        for prefix, least in _PREFIXES.items()
        if (word := other.removeprefix(prefix)) is not other
    )


def _turned(words: frozenset[str], others: frozenset[str]) -> bool:
    """Whether one of `words` has the other beginning, or the other end, in `others`."""
    heads = (
        other + root
        for one, other in _BEGINNINGS
        for word in words
        if len(root := word.removeprefix(one)) >= _LEAST_ROOT and root is not word
    )
    tails = (
        root + other
        for one, other in _ENDS
        for word in words
        if len(root := word.removesuffix(one)) >= _LEAST_ROOT and root is not word
    )
    return not others.isdisjoint(heads) or not others.isdisjoint(tails)


ANTONYMS = Guard(name="antonyms", read=_read, compare=_compare)
