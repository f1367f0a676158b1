"""SHA-256 of published files, in hexadecimal, by folder and file name.

The files of mnist, fashion-mnist, credit-card, parkinson and adult are the original bytes; those of
the other sets are this project's own packing of the published values.
"""

# ruff: noqa: E501 - a name and its checksum stay on one line
from __future__ import annotations

SHA256: dict[str, dict[str, str]] = {
    "adult": {
        "adult.data.gz": "fb9b6b419c38dd70d75d31f014b7f0905bf76e9625473c593455e31679a93184",
        "adult.test.gz": "5dd8e51005f6a86e42f058d66a957721196362cf8e8dde3efc8508532af4a083",
    },
    "avazu": {
        "avazu_first9999.csv.gz": "b419250a3876f802862e84eed671198412c7827194a6a54781cdabb8d450ea84",
        "avazu_random15k.csv.gz": "08d901528ebe6df3dea468ace74eee4d7d37f612f4bb429fbc8c9bcfe4873cf6",
    },
    "breast": {
        "breast_hetero_guest.csv.gz": "3e4ce3142be88be617389ddd91d4ac842c59548141999d63423e410314a75480",
        "breast_hetero_host.csv.gz": "5fe8d97e6c5d64845465c7a1bc0cd951ffccbb3e8d1ceead646d1664a2407fd4",
    },
    "caltech101-7": {
        "Caltech101-7_reextracted.mat": "f71258847b8bd01e4ca2ec0959a39e1330a7db6a41f0eedc607a154c0eeeb1b7",
    },
    "cifar10": {
        "labels.npz": "368ee4d0af728e81c18997d03571891f497359f2b6a1ecb1aa7b8ebf46d885ed",
        "test_first1000.webp": "cb828dc0e9362b4226d735175a2f991ca927366a08942e433c12d13c7e23ff10",
        "test_jpeg_q75.tar.gz": "33e6efe7655f1be7fb7373783dc369e9a809ff296896e9ff06f093b657170cc7",
        "train_00.webp": "5b1c8418d55b9755e2402dc5fe5ced6b538e261066f7366cc73bc615b1836320",
        "train_01.webp": "758ca6f6aa78526be9b65c2e2653c464b7f32c7f12746c408ff46ad24290f462",
        "train_02.webp": "4b40da7e1bae96c2823c5df0dfa47a88f4349b27d18db4b5532a9bf0c0cea126",
        "train_03.webp": "6ea5e7e66924869d2385d75c0bf8b63692e070252b93db8913df28f000280a5d",
        "train_04.webp": "02bf2e3ecbf638ead2720c2dc18478e24e6b94ddd4fd978625ad77afb8332a8d",
        "train_05.webp": "f7aaa370f427354ccf492e0d7598a56163d9089f3e327af14cfd25eeab7a3fb5",
        "train_06.webp": "3b243adaf1b6563ab2b3e46d2377df8cb213c18f239ebad9ca1ff4459cb4ac3e",
        "train_07.webp": "8710ebf4fb30e72721ec2cf6158b917dea31542628918660a9e6a1a2e478a29e",
        "train_08.webp": "4fe7dc25ec0ab30e7ffacaeb8e4642df6fa125be919e9c9abe1dc4ad4897589e",
        "train_09.webp": "64bc96b847fa41e18067f16b61684c8ab38bfd82022f3df0cd8eb1c5cc881402",
        "train_10.webp": "39446658baea626f0acce7c7c07a4a0a04338cf47b2d8a1e25659120240259af",
        "train_11.webp": "cc7e3e8eb6711944bf99f309593033d18dd8bcd38ca16e29092b5044562b5dbc",
        "train_12.webp": "199bb697ae2f93ad9a9f6f8e49816236ddc2271786c8eb1304cceb7c09664eb2",
        "train_13.webp": "8e3b27232f21faf809cb7a0b6dcc6eb1d7ea1bda04afd053fc3d79661dbf106f",
        "train_14.webp": "b2d945281c25e1f0ce71ebb15cbb7f5dbe762f6e4081046774fbfdb7e42aa15e",
        "train_15.webp": "f7d0e66e7d00fca3e9ce93bfd809c04a4c69853f5fc27c07f72c1f10dfb1585f",
        "train_16.webp": "c874233efa84d43c2c7150a91081529601ece03129c68a68d20f42076760432e",
        "train_17.webp": "206194c07ad1fe795c3db9f4ccb033f1bec319f267918f992e07a4c3b0e609a5",
        "train_18.webp": "98522c062559a6d40ca2dd987c9693e34dde0f4e93ac3b5c459b99e3f98aed65",
        "train_19.webp": "e00d1b8a1e6882aabc7d6adcc821e6838998cac0efc506eb26f7be7b7ca5f00e",
        "train_20.webp": "f92434e78d71f605b5c709c18470d049b23a3c825379cc3e5ba06c86c19095bc",
        "train_21.webp": "1f3b0380fe21042888735d524023e18aae7637ef723db25a0393e6ee5822ca44",
        "train_22.webp": "d16bb2baa1df940eda8498a9a76014258dacfbba2922c681baa4a672bb31e180",
        "train_23.webp": "55320580d3f72ac5ddb56e27afe214d0091832be51645fa593c6d2e6af956f0a",
        "train_24.webp": "fedd71982e04fe4b76884ca2d77532fc8c64badf84f78bf18060a1de123f7bf7",
        "train_25.webp": "f6c647841c41ff33089cd82837c0b5c4f13dd14572101666e28aa42e3a6dd74e",
        "train_26.webp": "0df103c48bfa69c206c71d42c78c10bf01caf51f24cfe39a90b2726bc60e26db",
        "train_27.webp": "13d55eeec507dac785d4dd9d8046cafb882a5476fa5b93ef0e622be8391d8303",
        "train_28.webp": "dddca4080b73f218a192f7019747add92fa6df96906403848be244ca915b942b",
        "train_29.webp": "58f2901164a0d793b13d839fc55dbeb5bc5929736fd525efe9708e84bcdc413b",
        "train_30.webp": "cf958fe454889b9c9a2db7e7e4c425dee5d7c9370e9371f12d790917d3dfcd7a",
        "train_31.webp": "ee3c792765b3dd9cd909b4e6ff5f487221a3c22624266694e3e2b9ee6bb469c6",
        "train_32.webp": "bb692c87898acf60fb46e5e0add40da1d59bad0b5d850761171c99e63a213a9e",
        "train_33.webp": "359c89a664573e2e098671394f47fe41619afb9ab5d0be1cfa8292942c50add2",
        "train_34.webp": "e6b4e8c039beacb079416f729ce024de97d9f0d2825f8e3ebfedd44ca68e7de9",
        "train_35.webp": "326a405b311494171a0c6c595f3d7f4ae1791b73aa65b7db0442ac788e2f4dd9",
        "train_36.webp": "57980c4b5774c4edc36f8fae8d7ed095e5d663e0db4a045ce08dfd1ea3415cb7",
        "train_37.webp": "944cc75146efed363724064d0b7316a630f428a45b928eb8ad3728b157f7ff89",
        "train_38.webp": "ec5ce171e5bda76a3f948e608d8ff22015c11de983faebd0147024dc2a961ded",
        "train_39.webp": "eef56baeb7d8ec35fd5aa884b9ab783514f72e8076c73a4141712b15e0773a9c",
        "train_40.webp": "7a729f6a14a31a1c6fea36c59d4649c6e2330978e0266db2afa937c04ca29b68",
        "train_41.webp": "1e380d0eae62917a78d879c47e8bf160620d5501df9d85d328cda32d48636259",
        "train_42.webp": "04969dcd6ab14449b2fee4374471a911ebc6786fea9c71060abff852aad6741a",
        "train_43.webp": "66778053dfd7dc392c9243b61344a6819efd77ce5e2a8003522d8175f801eb9d",
        "train_44.webp": "5b9734aff2fbd16c79dad74b675e7516fd37c0c6fe81fca73e141fcf5ce5c1fb",
        "train_45.webp": "bc06ed1c65db27f4ecc778501ce60f95af78b62d411638572262531bacf428de",
        "train_46.webp": "12b23424a6313c9329bbc46abf009585f1b81d149a1269bde441892921e6a256",
        "train_47.webp": "1a2cc53221404688d24b5888ba20b7bc939b84f3277168b80a332364fc68c361",
        "train_48.webp": "a44c2eff668c34e3655c17aa52b91938f53a055a45baf5e403ab6c22faf59a50",
        "train_49.webp": "8560fff11995d165ee2a374c00a6bd50ed659561379eb9649a7f9bf3d9955dde",
    },
    "credit-card": {
        "UCI_Credit_Card.csv.gz": "cae8f8b644a05c7e5b5847b22e77d15fbd7ac136a093b2102a16cfb9502ec28f",
    },
    "criteo": {
        "criteo_first10k.txt.gz": "b814f530a3be0ba2cc8aee587aa591ef571191d8f1bc0dd9d443d55db966bba3",
    },
    "emnist": {
        "emnist_balanced_part.npz": "66908dcfbf285cf6ce58d5fcb1f8e43d64a3bc4bf0a9f8b86476bbbd6492de5c",
    },
    "fashion-mnist": {
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    },
    "handwritten": {
        "mfeat-fac.csv.gz": "a5b7b663b1a56edd723bd13895a5a339f0a42dbe54bf5b9758c4ed57b83e3137",
        "mfeat-fou.csv.gz": "4cc586cf299a517fd53359105dec865ea7b096e11f64cdb36f8082c076000487",
        "mfeat-kar.csv.gz": "1eed5b89c9ca0d0189e1a8d864f4c780fd5cf49dd8316997ca123ddaccf30b7d",
        "mfeat-mor.csv.gz": "3fb3036ff020079b3d0bf0239299670ae128ab402963bbfcc2f12228ce396d7a",
        "mfeat-pix.csv.gz": "2855bb350b0c7e3deef28b58b521af49f86975573b4d9ac2f84865526cf3f5f5",
        "mfeat-zer.csv.gz": "88cbaa36d1dc0e1a003a514809449fa9e46c1917fa58cb420b889c480a10dd4c",
    },
    "mnist": {
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    },
    "parkinson": {
        "pd_speech_features.csv.gz": "11f2d4350510ab85cbbc8a0991dd58dc2ca81524eedc1df6d8126caf8495b4df",
    },
}
